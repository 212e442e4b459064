"""What the commands of the shell do. `gramless.cli.app` only parses arguments and calls these modules."""
