from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.services.packs.packs_support import Kvasir, Server, stand_ins, write_list


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """Serves the wheels of a small pack."""
    stand_ins(tmp_path / "wheels")
    server = Server(tmp_path / "wheels")
    yield server
    server.close()


@pytest.fixture
def kvasir(tmp_path: Path, server: Server) -> Kvasir:
    """A machine with a GPU, no pack, and a list that names the server's wheels."""
    kvasir = Kvasir(tmp_path, server.address)
    write_list(kvasir.lists, sorted(server.folder.glob("*.whl")), server.address)
    return kvasir


@pytest.fixture
def installed(kvasir: Kvasir, server: Server) -> Path:
    """The folder of a pack in use."""
    assert kvasir.result("install").ok
    server.log.clear()
    return Path(kvasir.status().folder)
