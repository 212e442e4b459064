"""`python -m gramless` is the `gramless` command."""

from gramless.cli import main

main()
