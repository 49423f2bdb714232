"""Text of other programs as people see it: control characters and marks that reorder text are escaped.

Names, reasons and bodies come from peers. Shown as they are, they could change what a terminal or a page displays: move the cursor, hide
text, or reverse its direction (U+202E).
"""


def visible(text: str, keep: str = "") -> str:
    """Escapes all characters that are not printable, except those in ``keep``.

    >>> visible("a\\x1b[31m\\n"), visible("safe\\u202etxt.exe"), visible("two\\nlines", keep="\\n")
    ('a\\\\x1b[31m\\\\n', 'safe\\\\u202etxt.exe', 'two\\nlines')
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in text)
