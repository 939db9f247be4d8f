"""Which cluster of Ray is meant."""

import pytest

from joblens.model.errors import InputError
from joblens.runners.ray.backend import choose_address


@pytest.mark.parametrize("address", ["head.example:6379", "10.0.0.1:6379", "[fd00::1]:6379", "auto"])
def test_an_address_is_taken_as_it_is_given(address: str) -> None:
    assert choose_address(address, None, {}) == address


def test_what_is_typed_goes_before_settings_and_those_before_the_variable() -> None:
    environ = {"RAY_ADDRESS": "c:3"}
    assert choose_address("a:1", "b:2", environ) == "a:1"
    assert choose_address(None, "b:2", environ) == "b:2"
    assert choose_address(None, "", environ) == "c:3"


def test_without_an_address_or_with_local_one_is_started() -> None:
    assert choose_address(None, None, {}) == ""
    assert choose_address("local", "b:2", {"RAY_ADDRESS": "c:3"}) == ""


@pytest.mark.parametrize(
    "address", ["nonsense", ":6379", "head:", "head:0", "head:70000", "a b:1", "http://a:1"]
)
def test_what_cannot_be_an_address_is_refused_with_where_it_stands(address: str) -> None:
    with pytest.raises(InputError, match="RAY_ADDRESS: ") as raised:
        choose_address(None, None, {"RAY_ADDRESS": address})
    assert "HOST:PORT" in raised.value.hint


def test_addresses_of_rays_client_are_refused() -> None:
    with pytest.raises(InputError, match="--address: ray://head:10001 is an address of Ray's client"):
        choose_address("ray://head:10001", None, {})
