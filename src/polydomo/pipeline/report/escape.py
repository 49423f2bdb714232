"""Text of the journal in the report's HTML."""

import html

from polydomo.visible import visible


def escape(text: str) -> str:
    """Neither HTML nor control characters of the text have an effect; line ends stay, for ``<pre>``.

    >>> escape("<b>\\u202e\\x07")
    '&lt;b&gt;\\\\u202e\\\\x07'
    """
    return html.escape(visible(text, keep="\n"))
