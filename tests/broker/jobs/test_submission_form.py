"""What a client may write into the fields of a job."""

import pytest

from polydomo.errors import SettingError
from polydomo.model.flows.messages import NodeSpec
from polydomo.model.jobs.messages import Submission, read_octets, read_service, read_text

NO_UTF_8 = "file \udcff"  # how Python writes the byte 0xFF of a file name


def test_texts_are_those_that_a_database_can_store() -> None:
    for text in (NO_UTF_8, "lone \ud800", "nul \0"):
        with pytest.raises(SettingError, match="key"):
            Submission({"service": "work", "key": text}, b"")
        with pytest.raises(SettingError, match="name"):
            NodeSpec(0, {"name": text, "service": "work"}, [])
        with pytest.raises(SettingError, match="name"):
            read_text({"name": text}, "name", 100)
    assert Submission({"service": "work", "key": "caf\u00e9"}, b"").key == "caf\u00e9"


def test_the_name_of_a_service_may_be_any_bytes() -> None:
    assert read_service({"service": NO_UTF_8}) == b"file \xff"
    assert read_octets({}, "service", 100) == b""
    with pytest.raises(SettingError, match="not valid Unicode"):
        read_service({"service": "lone \ud800"})
