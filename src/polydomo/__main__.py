"""``python -m polydomo`` runs the command ``polydomo``."""

from polydomo.cli.main import app

if __name__ == "__main__":
    app(prog_name="polydomo")
