from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo import limits
from polydomo.cli.common import flags
from polydomo.errors import SettingError
from polydomo.model.listener_roles import ROLES
from polydomo.model.objective import Objective
from polydomo.model.tuning import Tuning
from polydomo.server.settings import services
from polydomo.server.settings.retired import RETIRED
from polydomo.server.settings.settings import KINDS, Settings, flag_of, load, variable_of
from polydomo.server.settings.types import Count, Flag, Header, KeywordTable, Seconds, Size, TextList, Urls
from polydomo.wire.address import Address
from tests.test_numbers import FIXED


def toml(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "polydomo.toml"
    path.write_text(text, encoding="utf-8")
    return path


def complaint(**sources: object) -> str:
    with pytest.raises(SettingError) as caught:
        load(**sources)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- sources ----------------------------------------------------------------------------------------------------------


def test_defaults_stand_in_limits() -> None:
    settings = load()
    assert settings == Settings()
    assert settings.listen == ["tcp://127.0.0.1:5246"]
    assert settings.data == "./polydomo-data"
    assert settings.insecure is False
    assert settings.attempts == limits.ATTEMPTS
    assert settings.limits.max_message == limits.MAX_MESSAGE
    assert settings.limits.max_unsent == limits.MAX_UNSENT
    assert settings.limits.max_held_bytes == limits.MAX_HELD_BYTES
    assert settings.tuning() == Tuning()


def test_defaults_are_not_shared() -> None:
    Settings().listen.append("tcp://127.0.0.1:1")
    Settings().service["a"] = {"memo": True}
    assert Settings() == load()


def test_variables_and_flags_can_set_every_key() -> None:
    """Each key's own default, written as text, is read back from a variable and from a flag."""
    for described in load().describe():
        by_flag = load(flags={described.key: described.value})
        assert by_flag.get(described.key) == Settings().get(described.key)
        assert by_flag.sources == {described.key: f"flag {flag_of(described.key)}"}
        by_variable = load(environ={variable_of(described.key): described.value})
        assert by_variable.get(described.key) == Settings().get(described.key)


def test_rising_precedence(tmp_path: Path) -> None:
    file = toml(tmp_path, 'attempts = 4\ngrace = 5\n[memo]\nqueue_expiry = "1s"\n')
    environ = {"POLYDOMO_ATTEMPTS": "5", "POLYDOMO_MEMO_QUEUE_EXPIRY": "500ms", "HOME": "/"}
    settings = load(file, environ, {"attempts": 6, "data": None})
    assert (settings.attempts, settings.memo.queue_expiry, settings.grace) == (6, 0.5, 5.0)
    assert settings.sources == {
        "attempts": "flag --attempts",
        "memo.queue_expiry": "variable POLYDOMO_MEMO_QUEUE_EXPIRY",
        "grace": f"file {file}",
    }


def test_whole_file(tmp_path: Path) -> None:
    file = toml(
        tmp_path,
        """
        listen = ["tcp://127.0.0.1:0", "ipc:///tmp/p.sock"]
        data = "/var/lib/polydomo"
        log_json = true
        log_level = "DEBUG"
        requeue_after_partial = true
        busy_timeout = "15m"
        queue_expiry = 0.5
        beats_missed = 4

        [limits]
        max_message = "1MiB"

        [service."sum.*"]
        dialect = "majortomo"
        objective = "99.9% in 200ms"

        [mdx]
        client_header = "MDX"
        worker_header = "0x4d4458"

        [dbp]
        silent = false
        names = ["camera", "stage"]
        """,
    )
    settings = load(file)
    assert [listener.address for listener in settings.listeners()] == [
        Address("tcp", host="127.0.0.1", port=0),
        Address("ipc", path="/tmp/p.sock"),
    ]
    assert settings.log_level == "debug"
    tuning = settings.tuning()
    assert settings.policy().max_message == limits.MIB
    assert tuning.busy_timeout == 900.0
    assert tuning.beats_missed == 4
    assert tuning.mdp2_dialects.get(b"sum.up") == "majortomo" and tuning.mdp2_dialects.get(b"echo") is None
    assert tuning.objectives.get(b"sum.up") == Objective(0.2, 0.999)
    assert tuning.mdx_client_header == tuning.mdx_worker_header == b"MDX"
    assert tuning.dbp_silent is False
    assert tuning.dbp_names == ["camera", "stage"]


def test_every_protocol_key_reaches_the_tuning() -> None:
    """A key that ``tuning`` forgot would leave its default behind."""
    given: dict[str, object] = {
        "limits.max_message": 12345,
        "limits.max_outstanding": 77,
        "beat": 1.1,
        "beats_missed": 9,
        "busy_timeout": 77,
        "emqp.reply": "always",
        "mdp.busy": "strict",
        "mdx.busy": "lenient",
        "dcp.busy": "lenient",
        "emqp.busy": "lenient",
        "service": "a.dialect=libmdp; a.objective=99% in 1ms",
        "mdx.client_header": "A",
        "mdx.worker_header": "B",
        "dbp.silent": False,
        "dbp.names": "x",
        "dbp.require": "function",
        "dbp.registered_only": True,
        "memo.queue_expiry": 1.7,
        "values.max_unsent": 4321,
        "values.slow": "skip",
        "bridge.topics": "weather.",
        "bridge.accept": "all",
        "limits.max_client_bytes": 54321,
    }
    sections = {"mdx", "dbp", "emqp", "memo"}
    sockets = {
        *ROLES,
        "memo.max_bytes",
        "memo.max_age",
        "dbp.beacon",
        "dbp.udp",
        "dbp.broadcast",
    }  # the server's own
    assert {key for key in KINDS if key.partition(".")[0] in sections and key not in sockets} <= set(given)
    tuning, plain = load(flags=given).tuning(), Tuning()
    unchanged = {name for name in vars(plain) if getattr(tuning, name) == getattr(plain, name)}
    assert unchanged == FIXED["tuning"]


def test_variables() -> None:
    environ = {
        "POLYDOMO_LISTEN": "tcp://127.0.0.1:1, tcp://[::1]:1",
        "POLYDOMO_INSECURE": "yes",
        "POLYDOMO_MEMO_QUEUE_EXPIRY": "3",
        "POLYDOMO_QUEUE_EXPIRY": "4",
        "POLYDOMO_DATA": "",  # empty: not set
    }
    settings = load(environ=environ)
    assert settings.listen == ["tcp://127.0.0.1:1", "tcp://[::1]:1"]
    assert settings.insecure is True
    assert (settings.memo.queue_expiry, settings.queue_expiry) == (3.0, 4.0)
    assert settings.data == "./polydomo-data"


def test_file_named_by_a_variable(tmp_path: Path) -> None:
    file = toml(tmp_path, "attempts = 7")
    environ = {"POLYDOMO_CONFIG": str(file)}
    assert load(environ=environ).attempts == 7
    (tmp_path / "other.toml").write_text("attempts = 8")
    assert load(tmp_path / "other.toml", environ).attempts == 8


def test_variables_that_kubernetes_sets_for_a_service_of_our_name() -> None:
    environ = {
        "POLYDOMO_SERVICE_HOST": "10.0.0.1",
        "POLYDOMO_SERVICE_PORT": "5246",
        "POLYDOMO_SERVICE_PORT_MAIN": "5246",
        "POLYDOMO_PORT": "tcp://10.0.0.1:5246",
        "POLYDOMO_PORT_5246_TCP_ADDR": "10.0.0.1",
    }
    assert load(environ=environ) == Settings()


# --- complaints -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("attemps = 3", "attemps ({file}): unknown setting; did you mean attempts?"),
        ("max_message = 3", "did you mean limits.max_message?"),
        (
            "[limits]\nmax_mesage = 3",
            "limits.max_mesage ({file}): unknown setting; did you mean limits.max_message?",
        ),
        ("[limits]\nlisten = 3", "did you mean listen or dbp.listen?"),
        ("[limit]\nmax_message = 3", "[limit] ({file}): unknown section; did you mean [limits]?"),
        ("[zzz]\na = 3", "unknown section; the sections are [bridge], [dbp], [dcp], [durable], [emqp]"),
        ("zzz = 3", "`polydomo config` lists them all"),
        ("sources = 3", "sources ({file}): unknown setting"),
        ("mdx = 3", "mdx ({file}): must be a table, [mdx]"),
        ("attempts = 0", "attempts ({file}): must be a whole number from 1 to 1000, not 0"),
        ("attempts = true", "must be a whole number from 1 to 1000, not True"),
        ("attempts = 2.5", "must be a whole number from 1 to 1000, not 2.5"),
        ("listen = []", "listen ({file}): must have at least one address"),
        ("listen = [1]", "must be a list of strings"),
        (
            "listen = ['localhost:1']",
            "listen ({file}): 'localhost:1' is not an address: it has no scheme; did you mean tcp://localhost:1?",
        ),
        ("listen = ['tcp://[::1]:1', 'tcp://[::1]:1']", "tcp://[::1]:1 is listed twice"),
        ("data = ''", "data ({file}): must be a non-empty string, not ''"),
        ("insecure = 'maybe'", "insecure ({file}): must be true or false, not 'maybe'"),
        ("log_level = 'loud'", "must be one of debug, info, warning, error, not 'loud'"),
        ("grace = -1", "must be from 0s to"),
        ("grace = nan", "must be a number of seconds"),
        ("queue_expiry = 'soon'", 'such as "2.5s", "500ms" or "15m", not \'soon\''),
        ("beat = 0.001", "beat ({file}): 1ms must be 0, or from 10ms to 1h"),
        ("beat = '2h'", "beat ({file}): must be from 0s to 1h, not '2h'"),
        ("mdp.dialects = { echo = 'rfc18' }", "mdp.dialects ({file}): must give 'echo' one of majortomo, libmdp"),
        ("mdp.dialects = 3", "must be a table"),
        ("service = 3", 'service ({file}): must be tables by name pattern, such as [service."billing.*"], not 3'),
        ("[service]\ndurable = true", 'service ({file}): [service."durable"]: must be a table with some of durable,'),
        (
            "[service.'a.*']\ndurabel = true",
            "service ({file}): [service.\"a.*\"]: unknown option 'durabel'; the options are",
        ),
        ("[service.'a']\nretries = 0", '[service."a"]: retries must be a whole number from 1 to 4095, not 0'),
        (
            "[service.'a']\nobjective = 'fast'",
            "objective must be a share and a duration, such as \"99% in 200ms\", not 'fast'",
        ),
        ("[service.'a']\nobjective = '101% in 1s'", "objective must be a share and a duration"),
        ("[service.'a']\ndialect = 'x'", "dialect must be one of majortomo, libmdp, not 'x'"),
        ("[service.a.b]\nmemo = true", '[service.a.b]: a name with dots needs quotes: [service."a.b"]'),
        ("[service.'']\nmemo = true", "a name or pattern has 1 to 255 bytes"),
        ("mdx.client_header = 'MDPC01'", "must differ from the headers of the other protocols"),
        ("limits.max_message = '64 parsecs'", "must be a number of bytes, or a number with KiB, MiB or GiB"),
        ("limits.max_message = 1", "limits.max_message ({file}): must be from 1KiB to 1024GiB, not 1"),
        ("attempts = ", " is not TOML: "),
    ],
)
def test_file_complaints(tmp_path: Path, text: str, says: str) -> None:
    file = toml(tmp_path, text)
    assert says.format(file=f"file {file}") in complaint(file=file)


def test_unreadable_files(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    assert complaint(file=missing) == f"flag --config: cannot read {missing}: No such file or directory"
    assert complaint(environ={"POLYDOMO_CONFIG": str(tmp_path)}).startswith("variable POLYDOMO_CONFIG: cannot read")
    (tmp_path / "latin1.toml").write_bytes(b"data = '\xe9'")
    assert "is not UTF-8" in complaint(file=tmp_path / "latin1.toml")


def test_variable_complaints() -> None:
    assert complaint(environ={"POLYDOMO_LISTN": "x"}) == (
        "variable POLYDOMO_LISTN: unknown setting; did you mean POLYDOMO_LISTEN?"
    )
    assert "did you mean POLYDOMO_LIMITS_MAX_MESSAGE?" in complaint(environ={"POLYDOMO_MAX_MESSAGE": "1"})
    assert "lists them all" in complaint(environ={"POLYDOMO_XYZZY": ""})
    assert complaint(environ={"POLYDOMO_ATTEMPTS": "many"}) == (
        "attempts (variable POLYDOMO_ATTEMPTS): must be a whole number from 1 to 1000, not 'many'"
    )


def test_flag_complaints() -> None:
    assert (
        complaint(flags={"max_message": 1}) == "flag --max-message: unknown setting; did you mean limits.max_message?"
    )
    assert complaint(flags={"limits.max_queue": "0"}).startswith("limits.max_queue (flag --limits-max-queue): must be")


def test_a_long_value_is_cut_in_the_complaint() -> None:
    assert len(complaint(flags={"attempts": "x" * 10_000})) < 200


# --- keys of earlier versions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", RETIRED)
def test_a_key_without_effect_is_a_notice_and_changes_nothing(tmp_path: Path, key: str) -> None:
    section, _, name = key.partition(".")
    file = toml(tmp_path, f"[{section}]\n{name} = 'whatever it was'\n")
    for source, settings in (
        (f"file {file}", load(file)),
        (f"variable {variable_of(key)}", load(environ={variable_of(key): "5"})),
        (f"flag {flag_of(key)}", load(flags={key: "5"})),
    ):
        (notice,) = settings.notices
        assert (notice.key, notice.source) == (key, source)
        assert str(notice).startswith(f"{key} ({source}): setting has no effect any more: ") and notice.why
        assert settings.tuning() == Tuning() and settings.policy() == Settings().policy()
        assert [row for row in settings.describe() if row.source != "default"] == []


OLD = """
[durable]
services = ["bill.*", "render"]
retries = { render = 7 }
[memo]
services = ["lint.*"]
versions = { lint = "2" }
[mdp]
dialects = { thumbs = "libmdp" }
[journal]
services = { ping = "off" }
bodies = ["render", "sensors."]
"""
NEW = """
[service."bill.*"]
durable = true
[service.render]
durable = true
retries = 7
bodies = true
[service."lint.*"]
memo = true
[service.lint]
version = "2"
[service.thumbs]
dialect = "libmdp"
[service.ping]
journal = "off"
[service."sensors.*"]
bodies = true
"""


def test_keys_that_moved_to_the_options_of_services_still_count(tmp_path: Path) -> None:
    old = load(toml(tmp_path, OLD))
    assert {notice.key for notice in old.notices} == set(services.MOVED)
    assert all(notice.message == "setting has moved to the options of services" for notice in old.notices)
    new = load(toml(tmp_path, NEW))
    assert new.notices == [] and new.service == old.service
    assert old.sources[services.key_of("render", "retries")] == f"file {tmp_path / 'polydomo.toml'}"


def test_a_moved_key_says_what_to_write(tmp_path: Path) -> None:
    (notice,) = load(toml(tmp_path, "[durable]\nservices = ['a.*', 'b']")).notices
    assert notice.why == 'write durable = true in [service."a.*"], durable = true in [service."b"]'
    (notice,) = load(toml(tmp_path, "[memo]\nversions = { a = '2' }")).notices
    assert notice.why == 'write version = "2" in [service."a"]'
    (notice,) = load(flags={"durable.retries": "a=2,b=3,c=4,d=5"}).notices
    assert notice.why == "write --service 'a.retries=2; b.retries=3; c.retries=4', and the same for 1 more"
    (notice,) = load(environ={"POLYDOMO_MEMO_SERVICES": "a[1-3]"}).notices
    assert notice.why == "write --service 'a[1-3].memo=true'; [ matches itself now"


def test_old_and_new_forms_together(tmp_path: Path) -> None:
    file = toml(tmp_path, "durable.services = ['a', 'b']\n[service.a]\ndurable = false\nmemo = true")
    assert load(file).service == {"a": {"durable": False, "memo": True}, "b": {"durable": True}}
    replaced = load(file, {"POLYDOMO_DURABLE_SERVICES": "c"})  # a variable replaces the file's list
    assert replaced.service == {"a": {"durable": False, "memo": True}, "c": {"durable": True}}
    assert load(file, flags={"durable.services": "a"}).service == {"a": {"durable": True, "memo": True}}
    assert load(file, {"POLYDOMO_DURABLE_SERVICES": "a"}, {"service": "a.durable=no"}).service["a"]["durable"] is False


def test_a_key_without_effect_is_not_suggested() -> None:
    assert not set(RETIRED) & set(KINDS)
    assert "beacon_interval" not in complaint(flags={"dbp.beacon_intervall": 1})
    assert "BEACON_INTERVAL?" not in complaint(environ={"POLYDOMO_DBP_BEACON_INTERVALL": "1"})


def test_flags_without_effect_take_their_values() -> None:
    words = ["--mdp-beat", "5s", "--journal-merge", "--bridge-window=7", "--attempts", "4"]
    assert flags.read(words)[0] == {"mdp.beat": "5s", "journal.merge": "true", "bridge.window": "7", "attempts": "4"}


# --- the options of services --------------------------------------------------------------------------------------------


def test_options_from_all_sources(tmp_path: Path) -> None:
    file = toml(tmp_path, "[service.'billing.*']\nretries = 2\ndurable = true\n[service.echo]\nmemo = true\n")
    environ = {"POLYDOMO_SERVICE": 'billing.*.retries=3; "a.memo".version = 1.0;'}
    settings = load(file, environ, {"service": "billing.*.durable=off;echo.bodies"})
    assert settings.service == {
        "billing.*": {"retries": 3, "durable": False},
        "echo": {"memo": True, "bodies": True},
        "a.memo": {"version": "1.0"},
    }
    rows = {row.key: row for row in settings.describe()}
    assert rows['service."billing.*".retries'][1:4] == ("3", "5", "variable POLYDOMO_SERVICE")
    assert rows['service."billing.*".durable'][1:4] == ("false", "false", "flag --service")
    assert rows['service."echo".memo'][1:4] == ("true", "false", f"file {file}")
    assert "service" not in rows and all(row.help for row in rows.values())
    again = load(flags={"service": KINDS["service"].show(settings.service)})
    assert again.service == settings.service


def test_each_option_comes_from_the_most_specific_pattern() -> None:
    text = "*.retries=2; billing.*.retries=3; billing.eu.memo; billing.e?.retries=4; *.eu.durable; billing.*.durable=no"
    settings = load(flags={"service": text})
    retries, durable, memo = (settings.by_service(option) for option in ("retries", "durable", "memo"))
    assert [retries.get(name) for name in (b"x", b"billing.us", b"billing.eu")] == [2, 3, 4]
    assert [durable.get(name) for name in (b"x.eu", b"billing.eu", b"x")] == [True, False, None]
    assert [memo.get(name) for name in (b"billing.eu", b"billing.us")] == [True, None]


def test_of_equally_specific_patterns_the_later_counts() -> None:
    assert load(flags={"service": "a*c.retries=2; ac*.retries=3"}).by_service("retries").get(b"ac") == 3


@pytest.mark.parametrize(
    "text", ["a", "a.", ".memo", "a.memoo", "a.retries", "a.retries=", "a.objective=1", "a.memo=perhaps"]
)
def test_not_options(text: str) -> None:
    assert complaint(flags={"service": text}).startswith("service (flag --service): ")


def test_a_repeated_flag_adds_options() -> None:
    words = ["--service", "a.memo", "--service=b.retries=3", "--durable-services", "x", "--durable-services", "y"]
    found, _ = flags.read(words)
    assert found == {"service": "a.memo;b.retries=3", "durable.services": "x,y"}


# --- what keys say together -------------------------------------------------------------------------------------------


def test_other_bounds_follow_the_message_bound() -> None:
    small = load(flags={"limits.max_message": "1MiB"}).limits
    assert (small.max_unsent, small.max_held_bytes) == (limits.MAX_UNSENT, limits.MAX_HELD_BYTES)
    large = load(flags={"limits.max_message": "2GiB"}).limits
    assert large.max_unsent >= 2 * large.max_message
    assert large.max_held_bytes >= large.max_message


def test_bounds_that_were_set_must_agree() -> None:
    for key in ("limits.max_unsent", "limits.max_held_bytes"):
        assert (
            complaint(flags={key: "1MiB"})
            == f"{key} (flag {flag_of(key)}): 1MiB must not be smaller than limits.max_message, 64MiB"
        )
        load(flags={key: "64MiB"})


@pytest.mark.parametrize(
    "url", ["tcp://*:5246", "tcp://0.0.0.0:0", "tcp://[::]:5246", "tcp://192.0.2.1:1", "tcp://broker:1"]
)
def test_beyond_loopback_only_when_allowed(url: str) -> None:
    urls = ["tcp://127.0.0.1:5246", url]
    refused = complaint(flags={"listen": urls})
    assert refused.startswith(f"listen (flag --listen): {url} can be reached from other machines")
    assert "--insecure" in refused
    assert load(flags={"listen": urls, "insecure": True}).listen == urls


# --- describe ---------------------------------------------------------------------------------------------------------


def test_describe(tmp_path: Path) -> None:
    file = toml(tmp_path, "[limits]\nmax_message = 1048576")
    described = {entry.key: entry for entry in load(file, {"POLYDOMO_BEAT": "0.25"}).describe()}
    assert set(described) == set(KINDS)
    assert described["limits.max_message"][1:4] == ("1MiB", "64MiB", f"file {file}")
    assert described["beat"][1:4] == ("250ms", "0s", "variable POLYDOMO_BEAT")
    assert described["listen"][1:4] == ("tcp://127.0.0.1:5246", "tcp://127.0.0.1:5246", "default")
    assert all(entry.help for entry in described.values())


def test_variable_names_are_distinct() -> None:
    assert len({variable_of(key) for key in KINDS}) == len(KINDS)
    assert len({flag_of(key) for key in KINDS}) == len(KINDS)


# --- kinds ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        (1, 1),
        ("64MiB", 64 << 20),
        ("64 mib", 64 << 20),
        ("1.5KiB", 1536),
        ("1_000", 1000),
        ("2MB", 2_000_000),
        ("7B", 7),
    ],
)
def test_sizes(text: object, size: int) -> None:
    assert Size().read(text) == size


@pytest.mark.parametrize(
    "text", ["", "MiB", "1.5", "-1", "1e3", "1 2", "64M", "٣", True, None, float("inf"), [], "0", 2**41]
)
def test_not_sizes(text: object) -> None:
    with pytest.raises(ValueError, match="must be"):
        Size().read(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2.5s", 2.5),
        ("500ms", 0.5),
        ("15m", 900.0),
        ("1h", 3600.0),
        ("1d", 86400.0),
        ("3", 3.0),
        (3, 3.0),
        (0.5, 0.5),
        (".5 s", 0.5),
    ],
)
def test_seconds(text: object, seconds: float) -> None:
    assert Seconds().read(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "s", "-1s", "1y", "nan", "inf", float("nan"), float("inf"), True, None, "0", "1" * 400]
)
def test_not_seconds(text: object) -> None:
    with pytest.raises(ValueError, match="must be"):
        Seconds().read(text)


@given(st.integers(1, 2**40))
def test_a_size_is_shown_as_it_is_read(size: int) -> None:
    assert Size().read(Size().show(size)) == size


@given(st.integers(10, 10**9).map(lambda ms: ms / 1000))
def test_seconds_are_shown_as_they_are_read(seconds: float) -> None:
    assert Seconds().read(Seconds().show(seconds)) == pytest.approx(seconds)


def test_long_spans_are_shown_in_days_and_hours() -> None:
    assert [Seconds().show(span) for span in (0.0, 0.5, 2.5, 900.0, 5400.0, 7200.0, 2592000.0)] == [
        "0s",
        "500ms",
        "2.5s",
        "900s",
        "5400s",
        "2h",
        "30d",
    ]


@given(st.binary(min_size=1, max_size=255))
def test_a_header_is_shown_as_it_is_read(header: bytes) -> None:
    assert Header().read(Header().show(header)) == header


@pytest.mark.parametrize("text", ["", "0x", "0xzz", "0x1", "x" * 256, 7, None])
def test_not_headers(text: object) -> None:
    with pytest.raises(ValueError, match="must be"):
        Header().read(text)


def test_flags_words_tables() -> None:
    assert [Flag().read(text) for text in ("true", "Yes", "on", "1", True)] == [True] * 5
    assert [Flag().read(text) for text in ("false", "No", "off", "0", False)] == [False] * 5
    assert TextList().read("a, b,c") == TextList().read(["a", "b", "c"]) == ["a", "b", "c"]
    assert KeywordTable("x", "y").read("a=x, b=c=y") == {"a": "x", "b=c": "y"}
    assert KeywordTable("x", "y").read("") == {}
    assert Count().read(" 1_000 ") == 1000
    assert Urls().read("tcp://127.0.0.1:0,tcp://127.0.0.1:*") == ["tcp://127.0.0.1:0"] * 2


@pytest.mark.parametrize("text", ["a", "a=", "=x", "a=z", ["a"], {"a": 1}, {"": "x"}])
def test_not_tables(text: object) -> None:
    with pytest.raises(ValueError, match="must"):
        KeywordTable("x", "y").read(text)


@pytest.mark.parametrize("text", ["a,,b", ["a", ""], 3, {"a": "b"}, None])
def test_not_words(text: object) -> None:
    with pytest.raises(ValueError, match="must be"):
        TextList().read(text)


def test_a_bridge_is_not_asked_for_more_than_a_client_may_have_open() -> None:
    settings = Settings()
    assert settings.tuning().bridge_window == limits.BRIDGE_WINDOW
    settings.limits.max_outstanding = 10
    assert settings.tuning().bridge_window == 10


def test_the_window_never_lets_bridges_fill_a_queue() -> None:
    settings = Settings()
    settings.limits.max_queue = 100
    assert settings.tuning().bridge_window == 25
    settings.limits.max_queue = 1
    assert settings.tuning().bridge_window == 1


def test_nor_for_more_bytes_than_one_client_may_have_held_or_than_leave_room_for_others() -> None:
    settings = Settings()
    assert settings.tuning().bridge_bytes == settings.limits.max_client_bytes
    settings.limits.max_held_bytes = settings.limits.max_client_bytes
    assert settings.tuning().bridge_bytes == settings.limits.max_client_bytes // 4
