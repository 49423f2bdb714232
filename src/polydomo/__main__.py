"""``python -m polydomo`` runs the command ``polydomo``."""

from polydomo.cli.start import main

if __name__ == "__main__":
    main()
