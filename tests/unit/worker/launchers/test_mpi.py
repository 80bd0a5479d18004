"""What mpirun is told of its gang, in the words of each MPI."""

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from lockstep.worker.launchers import mpi
from lockstep.worker.settings import Settings
from lockstep.worker.start import Launch

NODES = ["10.9.0.1", "10.9.0.2", "10.9.0.6"]
LAUNCH = Launch(2, 0, 3, "10.9.0.1", 40123, "", "", NODES)


def settings(**more: Any) -> Settings:
    return Settings(
        operator_url="https://10.0.0.1:1", namespace="team", run="hello", run_uid="u", slot=0, incarnation=1,
        pod_uid="p", command=["mpirun", "train"], launcher="MPI", scratch="/run/lockstep", **more,
    )  # fmt: skip


OPEN_MPI_4 = {
    "OMPI_MCA_orte_default_hostfile": "/run/lockstep/a2/hostfile",
    "OMPI_MCA_plm_rsh_agent": "/run/lockstep/bin/ssh",
    "OMPI_MCA_oob_tcp_if_include": "10.9.0.0/29",
    "OMPI_MCA_btl_tcp_if_include": "10.9.0.0/29",
    "OMPI_MCA_orte_tmpdir_base": "/run/lockstep/a2",
    "OMPI_MCA_orte_fork_agent": "/run/lockstep/bin/lockstep-rank",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}
OPEN_MPI_5 = {
    "PRTE_MCA_prte_default_hostfile": "/run/lockstep/a2/hostfile",
    "PRTE_MCA_plm_ssh_agent": "/run/lockstep/bin/ssh",
    "PRTE_MCA_prte_if_include": "10.9.0.0/29",
    "PRTE_MCA_prte_tmpdir_base": "/run/lockstep/a2",
    "PRTE_MCA_prte_fork_agent": "/run/lockstep/bin/lockstep-rank",
    "PRTE_MCA_prte_rtos": "exec-agent=/run/lockstep/bin/lockstep-rank",
}
MPICH = {
    "HYDRA_HOST_FILE": "/run/lockstep/a2/hostfile.hydra",
    "HYDRA_LAUNCHER": "ssh",
    "HYDRA_LAUNCHER_AUTOFORK": "0",
    "HYDRA_LAUNCHER_EXEC": "/run/lockstep/bin/ssh",
    "HYDRA_IFACE": "eth1",
    "FI_TCP_IFACE": "eth1",
}
INTEL = {
    "I_MPI_HYDRA_HOST_FILE": "/run/lockstep/a2/hostfile.hydra",
    "I_MPI_HYDRA_BOOTSTRAP": "ssh",
    "I_MPI_PERHOST": "1",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC": "/run/lockstep/bin/ssh",
    "I_MPI_HYDRA_IFACE": "eth1",
    "I_MPI_GTOOL": "/run/lockstep/bin/lockstep-rank:all",
}


def test_every_mpi_is_told_in_its_own_names() -> None:
    made = mpi.environment(settings(), LAUNCH, {}, "eth1")
    assert made == {**OPEN_MPI_4, **OPEN_MPI_5, **MPICH, **INTEL}


def test_what_the_user_has_set_stays() -> None:
    own = {"OMPI_MCA_btl_tcp_if_include": "ib0", "HYDRA_IFACE": "ib0"}
    made = mpi.environment(settings(), LAUNCH, own, "eth1")
    assert not own.keys() & made.keys()
    assert made.keys() | own.keys() == {**OPEN_MPI_4, **OPEN_MPI_5, **MPICH, **INTEL}.keys()


def test_in_a_batch_job_mpirun_asks_srun_for_hosts_and_needs_the_rest() -> None:
    made = mpi.surroundings(settings(), LAUNCH, {"HYDRA_IFACE": "ib0"}, "eth1")
    assert not {name for name in made if "host" in name.lower() or "rsh" in name or "ssh" in name or "EXEC" in name}
    assert made.items() <= mpi.environment(settings(), LAUNCH, {}, "eth1").items()
    assert {"I_MPI_HYDRA_IFACE", "OMPI_MCA_btl_tcp_if_include", "PRTE_MCA_prte_tmpdir_base"} <= made.keys()
    assert "HYDRA_IFACE" not in made


def test_an_interface_that_is_not_known_is_left_out() -> None:
    assert not {"HYDRA_IFACE", "I_MPI_HYDRA_IFACE", "FI_TCP_IFACE"} & mpi.environment(settings(), LAUNCH, {}, "").keys()


@pytest.mark.parametrize(
    ("addresses", "network"),
    [
        (["10.9.0.1"], "10.9.0.1/32"),
        (["10.9.0.1", "10.9.0.2"], "10.9.0.0/30"),
        (["10.9.0.1", "10.9.3.255"], "10.9.0.0/22"),
        (["10.0.0.1", "10.255.0.1"], "10.0.0.0/8"),
        (["10.0.0.1", "192.168.0.1"], ""),
        (["fd00::1", "fd00::2"], ""),
        (["10.0.0.1", "fd00::2"], ""),
        (["node-1"], ""),
        ([], ""),
    ],
)
def test_the_network_is_the_smallest_with_all_nodes(addresses: list[str], network: str) -> None:
    assert mpi.common_network(addresses) == network


@pytest.mark.parametrize(
    ("more", "count"),
    [
        ({"launcher_options": {"slotsPerNode": 3}, "gpus": 8}, 3),
        ({"gpus": 8}, 8),
        ({}, 1),
        ({"launcher_options": {"slotsPerNode": None}}, 1),
    ],
)
def test_slots_are_as_asked_or_one_for_each_gpu(more: dict[str, Any], count: int) -> None:
    files = mpi.hostfiles(settings(**more), LAUNCH)
    assert files["/run/lockstep/a2/hostfile"] == "".join(f"{address} slots={count}\n" for address in NODES)
    assert files["/run/lockstep/a2/hostfile.hydra"] == "".join(f"{address}:{count}\n" for address in NODES)


def test_the_interface_is_the_one_that_has_the_address() -> None:
    names = {name for _, name in socket.if_nameindex()}
    assert mpi.interface_of("127.0.0.1") in names
    assert mpi.interface_of("203.0.113.9") == ""
    assert mpi.interface_of("fd00::1") == ""


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    (tmp_path / "scratch" / "a2").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    return tmp_path


def written(scratch: Path, common: Path) -> None:
    made = Settings(**{**settings().__dict__, "scratch": str(scratch / "scratch")})
    mpi.write_hostfiles(made, LAUNCH, str(scratch / "bin"), str(common))


def install(scratch: Path, *programs: str) -> None:
    for program in programs:
        (scratch / "bin" / program).write_text("")
        (scratch / "bin" / program).chmod(0o755)


@pytest.mark.parametrize(
    ("programs", "shape"),
    [
        ([], "10.9.0.1 slots=1"),
        (["mpirun", "orterun"], "10.9.0.1 slots=1"),
        (["mpirun", "mpiexec.hydra"], "10.9.0.1:1"),
        (["mpiexec.hydra", "prterun"], "10.9.0.1 slots=1"),
        (["mpiexec.hydra", "deepspeed"], "10.9.0.1 slots=1"),
    ],
)
def test_commands_that_name_the_common_host_file_find_the_shape_they_read(
    scratch: Path, programs: list[str], shape: str
) -> None:
    install(scratch, *programs)
    common = scratch / "etc" / "mpi" / "hostfile"
    written(scratch, common)
    assert common.read_text().splitlines()[0] == shape


def test_the_link_follows_the_attempt_and_replaces_nobodys_file(scratch: Path) -> None:
    common = scratch / "hostfile"
    common.symlink_to("/run/lockstep/a1/hostfile")  # whose attempt is over
    written(scratch, common)
    assert os.readlink(common) == str(scratch / "scratch" / "a2" / "hostfile")
    common.unlink()
    common.write_text("mine")
    written(scratch, common)
    assert common.read_text() == "mine"


def test_without_a_place_for_the_link_there_is_none(scratch: Path) -> None:
    (scratch / "file").write_text("")
    written(scratch, scratch / "file" / "mpi" / "hostfile")
    assert (scratch / "scratch" / "a2" / "hostfile").exists()
