import decimal
import pathlib

import msgspec

from joblens.app.jobs.requests import plain_params, plain_text


def test_what_json_knows_stays_as_it_is() -> None:
    params = {"mesh_size": 64, "rate": 0.5, "on": True, "none": None, "name": "a", "sizes": [1, {"x": 2}]}
    assert plain_params(params) == params


def test_anything_else_becomes_its_text() -> None:
    params = plain_params({"path": pathlib.PurePosixPath("/data"), "price": decimal.Decimal("1.5"), "3": {4}})
    assert params == {"path": "/data", "price": "1.5", "3": [4]}


def test_everything_can_be_written_down_as_json() -> None:
    circle: list[object] = []
    circle.append(circle)
    params = {"circle": circle, "huge": 10**40, "nan": float("nan"), "inf": float("-inf"), "bad": "\udcff"}
    written = msgspec.json.decode(msgspec.json.encode(plain_params(params)))
    assert written["huge"] == str(10**40)
    assert written["nan"] == "nan"
    assert written["bad"] == "\\udcff"


def test_no_params_are_no_params() -> None:
    assert plain_params(None) == {}
    assert plain_text(123) == "123"
