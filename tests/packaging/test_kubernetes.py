"""The manifests of packaging/kubernetes: against Kubernetes's schemas, the settings, and a real broker's answers."""

import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import polydomo
from polydomo.server.settings import settings
from tests.cli.shell import PATIENCE, Broker, script
from tests.packaging.kubernetes.schemas import RELEASES, validate
from tests.plain_http import http_client
from tests.ports import free_port
from tests.server.harness import wait_for
from tests.stores.conftest import postgres

__all__ = ["postgres"]

PLACE = Path(__file__).parents[2] / "packaging" / "kubernetes"
OVERLAYS = ("one", "two", "monitoring", "worker")
OTHERS = ("monitoring.coreos.com/v1", "keda.sh/v1alpha1")  # kinds of operators, which Kubernetes's schemas do not have


def manifests() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted(PLACE.rglob("*.yaml")):
        if path.name != "kustomization.yaml":
            for found in yaml.safe_load_all(path.read_text()):
                yield str(path.relative_to(PLACE)), found


def pod(file: str) -> dict[str, Any]:
    (found,) = [found for name, found in manifests() if name == file]
    made: dict[str, Any] = found["spec"]["template"]["spec"]
    return made


def broker_container() -> dict[str, Any]:
    container: dict[str, Any] = pod("base/statefulset.yaml")["containers"][0]
    return container


@pytest.mark.parametrize("release", RELEASES)
def test_manifests_are_valid(release: str) -> None:
    patches = ("two/two-brokers.yaml", "two/through-leader.yaml")
    checked = [found for name, found in manifests() if found["apiVersion"] not in OTHERS and name not in patches]
    assert len(checked) >= 8
    for found in checked:
        validate(found, release)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("spec", "replica"), 1, "'replica' was unexpected"),
        (("spec", "template", "spec", "containers", 0, "image"), 1, "1 is not of type 'string'"),
        (("spec", "serviceName"), None, "'serviceName' is a required property"),
    ],
)
def test_faults_of_a_manifest_are_found(release: str, path: tuple[Any, ...], value: Any, message: str) -> None:
    (found,) = [found for name, found in manifests() if name == "base/statefulset.yaml"]
    place = found
    for step in path[:-1]:
        place = place[step]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError, match=message):
        validate(found, release)


def test_every_file_of_a_kustomization_is_there_but_for_secrets() -> None:
    for overlay in ("base", *OVERLAYS):
        found = yaml.safe_load((PLACE / overlay / "kustomization.yaml").read_text())
        paths = [*found.get("resources", []), *(patch["path"] for patch in found.get("patches", []))]
        paths += [path for one in found.get("configMapGenerator", []) for path in one["files"]]
        for path in paths:
            assert (PLACE / overlay / path).exists(), path
        for one in found.get("secretGenerator", []):
            assert all(not (PLACE / overlay / path).exists() for path in one.get("files", [])), "a secret is committed"


@pytest.mark.parametrize("file", ["base/statefulset.yaml", "two/leader.yaml", "worker/deployment.yaml"])
def test_pods_are_restricted(file: str) -> None:
    found = pod(file)
    assert found["securityContext"]["runAsNonRoot"]
    assert found["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    for container in found["containers"]:
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"]
        assert security["capabilities"]["drop"] == ["ALL"] and container["resources"]["limits"]["memory"]


@pytest.mark.parametrize("file", ["base/statefulset.yaml", "worker/deployment.yaml"])
def test_pods_may_read_the_secrets_that_they_mount(file: str) -> None:
    """Kubernetes gives the files to root and to the group ``fsGroup``."""
    found = pod(file)
    security = found["securityContext"]
    assert any("secret" in volume for volume in found["volumes"])
    assert security["fsGroup"] == security["runAsGroup"] == security["runAsUser"]


def test_who_asks_from_other_namespaces_reaches_the_broker() -> None:
    by_name = {(found["kind"], found["metadata"]["name"]): found for _, found in manifests()}
    for name, key, place in (
        ("polydomo-from-keda", "kubernetes.io/metadata.name", "namespaceSelector"),
        ("polydomo-from-prometheus", "app.kubernetes.io/name", "podSelector"),
    ):
        spec = by_name["NetworkPolicy", name]["spec"]
        assert spec["podSelector"] == by_name["NetworkPolicy", "polydomo"]["spec"]["podSelector"]
        (rule,) = spec["ingress"]
        assert key in rule["from"][0][place]["matchLabels"] and rule["ports"][0]["port"] == 5246
    monitored = by_name["ServiceMonitor", "polydomo"]["spec"]["selector"]["matchLabels"].items()
    services = [
        found["metadata"] for kind, found in ((key[0], value) for key, value in by_name.items()) if kind == "Service"
    ]
    chosen = [one["name"] for one in services if monitored <= one.get("labels", {}).items()]
    assert chosen == ["polydomo-pods"], "of two brokers, each is asked, not the one to which the common address leads"


def test_the_settings_of_the_pods_are_settings() -> None:
    given = {one["name"]: one["value"] for one in broker_container()["env"]}
    alone = settings.load(str(PLACE / "base" / "polydomo.toml"), {}, {}, {})
    assert given == {"POLYDOMO_LISTEN": alone.listen[0], "POLYDOMO_DATA": alone.data}
    (volume,) = [one["mountPath"] for one in broker_container()["volumeMounts"] if one["name"] == "data"]
    assert Path(alone.data).parent == Path(volume), "because of `fsGroup` the volume itself is writable for the group"
    variables = [one["name"] for one in pod("two/two-brokers.yaml")["containers"][0]["env"]]
    given |= {name: "tcp://127.0.0.1:5246" for name in variables if name.startswith("POLYDOMO_")}
    store = {"POLYDOMO_STORE": "postgresql://polydomo@postgres/polydomo"}
    found = settings.load(str(PLACE / "base" / "polydomo.toml"), {**given, **store}, {}, {})
    assert not found.notices and found.durable.address == "tcp://127.0.0.1:5246"
    assert pod("base/statefulset.yaml")["terminationGracePeriodSeconds"] > found.grace


def test_the_probes_and_the_scaler_get_what_they_ask_for(tmp_path: Path) -> None:
    (scaled,) = [found for _, found in manifests() if found["kind"] == "ScaledObject"]
    trigger = scaled["spec"]["triggers"][0]["metadata"]
    path = trigger["url"].removeprefix("http://polydomo.polydomo:5246")  # service and namespace
    hosts = settings.load(str(PLACE / "base" / "polydomo.toml"), {}, {}, {}).http.hosts
    probe = broker_container()["readinessProbe"]["httpGet"]["path"]
    serves = [f"--http-hosts={','.join(hosts)}"]
    with Broker(tmp_path / "data", *serves) as broker, http_client(broker.url.replace("tcp", "http")) as client:
        assert client.get(path, headers={"host": "polydomo.polydomo:5246"}).status_code == 200
        assert client.get("/healthz", headers={"host": "polydomo:5246"}).status_code == 200, "from its namespace"
        assert client.get(probe).status_code == 200
        wait_for(lambda: client.get("/healthz?leader").status_code == 200, "the jobs of its store")
        assert client.get(path).json()[trigger["valueLocation"]] == 0
        for _ in range(3):
            client.post("/v1/call/upper", content=b"x", headers={"Prefer": "respond-async"})
        assert client.get(path).json()[trigger["valueLocation"]] == 3
        slow = script("sleep 600")
        with broker.worker("upper", *slow), broker.worker("upper", *slow):
            while client.get(path).json()["service"]["workers"] < 2:
                pass  # the second one registers
            assert client.get(path).json()[trigger["valueLocation"]] == 1.5


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_kustomize_builds_the_overlays(overlay: str, tmp_path: Path) -> None:
    shutil.copytree(PLACE, tmp_path / "kubernetes")
    place = tmp_path / "kubernetes" / overlay
    (place / "access").mkdir()
    for name in ("access.toml", "server.key", "server.key_secret", "alice.key"):
        (place / "access" / name).touch()
    (place / "store.env").write_text("POLYDOMO_STORE=postgresql://polydomo@postgres/polydomo\n")
    built = subprocess.run(["kubectl", "kustomize", str(place)], capture_output=True, text=True, timeout=60, check=True)
    kinds = [found["kind"] for found in yaml.safe_load_all(built.stdout)]
    assert kinds and all(kinds)
    if overlay == "two":
        assert "polydomo-leader" in built.stdout and kinds.count("Secret") == 2


@pytest.mark.skipif(shutil.which("haproxy") is None, reason="haproxy is not installed")
def test_haproxy_accepts_its_configuration() -> None:
    words = ["haproxy", "-c", "-f", str(PLACE / "two" / "haproxy.cfg")]
    subprocess.run(words, check=True, capture_output=True, timeout=60)


def leading(ports: list[int], port: int) -> str:
    """two/haproxy.cfg for brokers at these ports of this machine."""
    text = (PLACE / "two" / "haproxy.cfg").read_text()
    text = re.sub(r"resolvers cluster\n(  .*\n)+", "", text).replace(" resolvers cluster init-addr none", "")
    text = text.replace("bind :5246", f"bind 127.0.0.1:{port}")
    for number, own in enumerate(ports):
        text = text.replace(f"polydomo-{number}.polydomo-pods:5246", f"127.0.0.1:{own}")
    return text


@pytest.mark.skipif(shutil.which("haproxy") is None, reason="haproxy is not installed")
@pytest.mark.xdist_group("postgres")
def test_haproxy_leads_to_the_broker_that_leads(postgres: Any, tmp_path: Path) -> None:
    store = ("--store", postgres.database("haproxy"))
    leads = "this broker is the leader for jobs"
    with Broker(tmp_path / "0", *store) as first:
        first.logged(leads)
        with Broker(tmp_path / "1", *store) as second:
            port = free_port()
            config = tmp_path / "haproxy.cfg"
            config.write_text(leading([int(broker.url.rpartition(":")[2]) for broker in (first, second)], port))
            haproxy = subprocess.Popen(["haproxy", "-db", "-f", str(config)], stderr=subprocess.DEVNULL)
            try:
                with polydomo.Client(f"tcp://127.0.0.1:{port}", timeout=PATIENCE) as client:
                    job = client.submit_job("upper", "kept")
                    assert first.ask("jobs")
                    first.send(signal.SIGKILL)
                    second.logged(leads)
                    with second.worker("upper", "--", "tr", "a-z", "A-Z"):
                        assert client.result(job, wait=PATIENCE).text == "KEPT"
            finally:
                haproxy.terminate()
                haproxy.wait()
