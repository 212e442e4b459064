"""Entry point of the `gramless` command and of `python -m gramless`.

The command is installed even without its optional dependencies.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line, or exit with the installation hint if an optional dependency is missing."""
    try:
        from gramless.cli.app import main as run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("gramless"):
            raise
        sys.exit(f"gramless: the command line needs {error.name}; install it with: pip install 'gramless[cli]'")
    run()


if __name__ == "__main__":
    main()
