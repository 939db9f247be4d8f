"""Names and addresses of machines."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether only this machine can be reached by it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
