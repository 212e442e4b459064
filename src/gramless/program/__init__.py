"""What the commands of the shell do. `gramless.cli` only parses arguments and calls these modules."""
