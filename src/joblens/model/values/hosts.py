"""Names and addresses of machines."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Returns whether the name or address reaches only this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
