"""The addresses of job stores, as messages and `polydomo config` show them."""

from urllib.parse import urlsplit, urlunsplit


def without_password(url: str) -> str:
    """The address without its password and its parameters, which may contain one. Anything else is returned as it is.

    >>> without_password("postgresql://anna:secret@db.example:5432/jobs?sslmode=require")
    'postgresql://anna@db.example:5432/jobs'
    >>> without_password("sqlite:/var/lib/jobs.db"), without_password("off")
    ('sqlite:/var/lib/jobs.db', 'off')
    """
    if "://" not in url:
        return url
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")
    user = place[0].partition(":")[0]
    return urlunsplit((parts.scheme, f"{user}@{place[2]}" if user else place[2], parts.path, "", ""))
