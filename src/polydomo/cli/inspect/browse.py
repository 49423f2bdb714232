"""``polydomo open``: opens the broker's dashboard in a browser."""

import http.client
import urllib.error
import urllib.request
import webbrowser
from typing import Annotated

import typer

from polydomo.cli.common import options
from polydomo.cli.common.options import To
from polydomo.cli.common.security import name_of
from polydomo.errors import NotConnected, SettingError

LOOK_TIME = 3.0  # seconds to wait for an answer from the broker


def add_to(app: typer.Typer) -> None:
    app.command(name="open")(open_dashboard)


def open_dashboard(
    to: To = None,
    show: Annotated[bool, typer.Option("--print", help="Print the address instead of opening a browser.")] = False,
) -> None:
    """Open the broker's dashboard in a browser.

    If access control is on, the address contains a login code. It logs the page in as you, works once, and expires after a minute.

    Exits with status 5 if no broker answers.

    **Examples**

    - `polydomo open`
    - `polydomo open --to tcp://127.0.0.1:6000 --print`
    """
    from polydomo.cli.common.exit_status import needs_broker
    from polydomo.cli.inspect.inspection import ask

    url = options.address(to)
    page = page_of(url)
    with needs_broker(url):
        check(page)
    code = ask(to, "login", LOOK_TIME).get("code", "")
    if code:  # access control is on: the page logs in with a single-use code that expires after a minute
        page += f"#token={code}"
    typer.echo(page)
    if not show and not webbrowser.open(page):
        typer.echo("cannot start a browser; open the address above in one", err=True)


def page_of(url: str) -> str:
    """
    >>> page_of("tcp://127.0.0.1:5246"), page_of("tls+tcp://broker.lab:5246")
    ('http://127.0.0.1:5246/', 'https://broker.lab:5246/')
    """
    scheme, _, rest = url.partition("://")
    if scheme not in ("tcp", "tls+tcp"):
        raise SettingError(
            f"{name_of('to')}: a browser reaches a broker at tcp:// and tls+tcp:// addresses, not at {url}"
        )
    return f"{'https' if scheme == 'tls+tcp' else 'http'}://{rest}/"


def check(page: str) -> None:
    """Raises NotConnected if no broker answers at the address."""
    try:
        with urllib.request.urlopen(f"{page}healthz", timeout=LOOK_TIME):
            pass
    except urllib.error.HTTPError:
        pass  # the broker answers; the browser handles certificates and tokens
    except (OSError, ValueError, http.client.HTTPException) as error:
        failure = NotConnected(f"{page}: {getattr(error, 'reason', error)}")
        failure.accepted = isinstance(error, TimeoutError | ConnectionError | http.client.HTTPException)
        raise failure from None
