"""What nonsense is made of: frames that some protocol knows, put together at random, and honest messages to begin with."""

from hypothesis import strategies as st

from polydomo.protocols import registry
from polydomo.protocols.dbp import session as dbp
from polydomo.wire import frames, sp
from tests.fuzz import extensions, fast_paths, jobs, security, web
from tests.fuzz.targets import GREETING, HELLO_REQ, ready

HEADERS = [
    b"",
    b"MDPC01",
    b"MDPW01",
    b"MDPC02",
    b"MDPW02",
    b"MDXC01",
    b"MDXW01",
    b"DGBX\x01",
    b"eMQP/1.0",
    b"polydomo-failure",
]
COMMANDS = [
    *(bytes((code,)) for code in range(14)),
    *(bytes((code, 0, 0, 0)) for code in range(1, 7)),
    *(b"1", b"2", b"3", b"4", b"5", b"6", b"PING", b"PONG"),
    *(b"WITHIN", b"CANCEL", b"CREDIT", b"RELEASED", b"KEPT", b"RETURN", b"FAIL"),
    *(b"REQUEST", b"REPLY", b"READY", b"INFORM", b"HEARTBEAT", b"DISCONNECT", b"KBYE", b"ACK", b"PUBLISH", b"SCHEDULE"),
    *sorted(dbp.COMMANDS),
]
WORDS = [
    *(b"echo", b"mmi.service", b"polydomo.status", b"default", b"nobody", b"\xff\xfe"),
    *(
        b"worker",
        b"scheduler",
        b"reply-requested,timeout:1",
        b"retry-count:99999999999",
        b'[[1, "echo"]]',
        b"[[[[",
        b"{}",
    ),
    *(b'{"name": "x", "heartbeat": 1}', b"0.0", bytes(4), bytes(8), b"000000001001", b"00000000100a"),
    *(b"\x00", b"\x01", b"x" * 255, b"x" * 256, b"x" * 5000),
]

frame = st.one_of(st.sampled_from(HEADERS), st.sampled_from(COMMANDS), st.sampled_from(WORDS), st.binary(max_size=20))
message = st.one_of(
    st.lists(frame, min_size=1, max_size=9),
    st.builds(
        lambda h, c, rest: [h, c, *rest],
        st.sampled_from(HEADERS),
        st.sampled_from(COMMANDS),
        st.lists(frame, max_size=6),
    ),
    st.builds(
        lambda h, c, rest: [b"", h, c, *rest],
        st.sampled_from(HEADERS),
        st.sampled_from(COMMANDS),
        st.lists(frame, max_size=6),
    ),
)


def honest(wire: str) -> list[list[list[bytes]]]:
    """What clients and workers of every protocol of that wire say first."""
    dialogs = []
    for name in registry.names():
        client, worker = registry.client_end(name), registry.worker_end(name)
        if client.wire != wire:
            continue
        client.request(1, b"echo", [b"one", b"two"], 2.0)
        client_again = registry.client_end(name)
        client_again.request(1, b"mmi.service", [b"echo"], 2.0)
        worker.open([b"echo"], 2)
        worker.beat()
        dialogs += [client.out, client_again.out, worker.out]
    return dialogs


def corpus() -> dict[str, list[bytes]]:
    """Honest bytes for each target."""
    spoken = [b"".join(map(frames.join, messages)) for messages in honest("zmtp")]
    nng = [b"".join(sp.message(rid, body) for rid, body in messages) for messages in honest("sp")]
    single = [frames.join(message) for messages in honest("zmtp") for message in messages]
    headers = [body for messages in honest("sp") for _, body in messages]
    return {
        "zmtp_from_the_first_byte": [GREETING + ready(b"DEALER") + one for one in spoken[:6]],
        "zmtp_traffic": spoken,
        "zmtp_dialing": [GREETING + ready(b"ROUTER")],
        "sp_from_the_first_byte": [HELLO_REQ + one for one in nng],
        "sp_traffic": nng,
        **security.honest(),
        **web.honest(),
        **jobs.honest(),
        **extensions.honest(),
        "fast_path": fast_paths.honest(),
        "memo_fast_path": fast_paths.honest_memo(),
        "broker_zmtp": [b"\x00" + one for one in [*spoken, *fast_paths.honest()]]
        + [b"\x05\x00\x05topic", b"\x03\x00\x06\x01topic"],
        "broker_sp": nng + fast_paths.honest_memo(),
        "client_ends": single,
        "worker_ends": single + extensions.to_workers(),
        "dbp_end": [frames.join([b"", b"o_O", bytes(4), b"{}"]), frames.join([b"", b"OwO", bytes(4), b""])],
        "body_frames": single[:4],
        "cbor_header": headers,
        "memo_message": headers,
        "emqp_words": [b"reply-requested,retry-count:2,timeout:5", b'{"a": 1}', b'[[10, "default"], [5, "x"]]', b"a,b"],
        "datagram": [b"SHALOM 5246", frames.join([b"", b"<3", bytes(4), b"name"])],
        "url": [b"tcp://127.0.0.1:5246", b"tcp://[::1]:0", b"ipc:///tmp/x", b"tcp://*:1"],
    }
