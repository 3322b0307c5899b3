"""The worked examples for Kubernetes and Slurm parse, and say what their pages say."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def documents(name: str) -> list[dict]:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed in this environment")
    return list(yaml.safe_load_all((EXAMPLES / "kubernetes" / name).read_text(encoding="utf-8")))


def test_the_mpijob_has_as_many_ranks_as_slots() -> None:
    (job,) = documents("mpijob.yaml")
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v2beta1", "MPIJob")
    specs = job["spec"]["mpiReplicaSpecs"]
    assert set(specs) == {"Launcher", "Worker"}
    (launcher,) = specs["Launcher"]["template"]["spec"]["containers"]
    command = launcher["command"]
    ranks = int(command[command.index("-np") + 1])
    assert ranks == specs["Worker"]["replicas"] * job["spec"]["slotsPerWorker"]


def test_the_trainjob_mounts_the_key_that_it_names() -> None:
    (job,) = documents("trainjob.yaml")
    assert (job["apiVersion"], job["kind"]) == ("trainer.kubeflow.org/v1alpha1", "TrainJob")
    (variable,) = job["spec"]["trainer"]["env"]
    (override,) = job["spec"]["podTemplateOverrides"]
    (mount,) = override["spec"]["containers"][0]["volumeMounts"]
    assert variable["name"] == "HORO_KEY_FILE"
    assert variable["value"].startswith(mount["mountPath"])
    check_secret(override["spec"]["volumes"], mount)


def check_secret(volumes: list[dict], mount: dict) -> None:
    (volume,) = volumes
    assert volume["name"] == mount["name"]
    # YAML 1.1 reads it as octal, as Kubernetes does.
    assert volume["secret"]["defaultMode"] == 0o400


def test_the_indexed_job_meets_at_its_first_pod() -> None:
    service, job = documents("indexed-job.yaml")
    assert service["spec"]["clusterIP"] == "None"
    spec = job["spec"]
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    variables = {one["name"]: one["value"] for one in container["env"]}
    assert int(variables["HORO_SIZE"]) == spec["completions"]
    first = f"{job['metadata']['name']}-0.{pod['subdomain']}:"
    assert variables["HORO_STORE"].startswith(first)
    assert pod["subdomain"] == service["metadata"]["name"]
    check_secret(pod["volumes"], container["volumeMounts"][0])


def test_the_batch_script_is_one_that_bash_and_sbatch_read() -> None:
    script = EXAMPLES / "slurm" / "train.sbatch"
    subprocess.run(["bash", "-n", str(script)], check=True)
    lines = script.read_text(encoding="utf-8").splitlines()
    directives = [line for line in lines if line.startswith("#SBATCH")]
    assert all(re.fullmatch(r"#SBATCH --[a-z-]+=\S+", line) for line in directives)
    # sbatch stops reading at the first command.
    commands = [number for number, line in enumerate(lines) if line and not line.startswith("#")]
    assert max(lines.index(line) for line in directives) < commands[0]
    assert any(line.startswith("srun ") for line in lines)
