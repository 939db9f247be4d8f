"""What a store is called: the path of a file, or a URL. A password in it is for connecting only: names that
are shown, kept or handed to other processes go without."""

_SCHEME = "postgresql://"
_SCHEMES = (_SCHEME, "postgres://")
_SECRET_PARAMETERS = ("password", "sslpassword")


def is_postgres(url: str) -> bool:
    return url.lower().startswith(_SCHEMES)


def without_password(url: str) -> str:
    """The same store under its one name. What is no URL of PostgreSQL stays as it is."""
    if not is_postgres(url):
        return url
    # The last '@': a password may hold one that should have been written %40, and must not be shown for it.
    user, at, rest = url.partition("://")[2].rpartition("@")
    if "?" in user and ":" not in user.partition("?")[0]:  # it stands in a parameter
        place, mark, query = f"{user}{at}{rest}".partition("?")
        user, at, place = place.rpartition("@")
    else:
        place, mark, query = rest.partition("?")
    kept = [part for part in query.split("&") if part.partition("=")[0].lower() not in _SECRET_PARAMETERS]
    parameters = "&".join(kept)
    return _SCHEME + user.partition(":")[0] + at + place + (mark if parameters else "") + parameters


def has_password(url: str) -> bool:
    return is_postgres(url) and without_password(url) != _SCHEME + url.partition("://")[2]


def same_store(name: str, url: str) -> bool:
    """Whether a name without a password stands for the store at this URL."""
    return is_postgres(name) and not has_password(name) and without_password(url) == without_password(name)
