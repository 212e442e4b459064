"""Implementation of the shell commands; `gramless.cli.app` parses arguments and calls the other modules."""
