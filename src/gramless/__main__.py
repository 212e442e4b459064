"""`python -m gramless`, and the `gramless` command, which is installed whether or not its extra is."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command, or say how to install what it needs."""
    try:
        from gramless.cli.app import main as run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("gramless"):
            raise
        sys.exit(f"gramless: the command line needs {error.name}; install it with: pip install 'gramless[cli]'")
    run()


if __name__ == "__main__":
    main()
