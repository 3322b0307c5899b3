"""Plants one violation of each rule of check_layers.py and expects it to be found."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path

from check_layers import check


class LayersTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)

    def found(self, path: str, text: str) -> list[str]:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        messages = [str(violation) for violation in check(self.root)]
        file.unlink()
        return messages

    def refused(self, path: str, text: str, part: str) -> None:
        messages = self.found(path, text)
        self.assertTrue(any(part in message for message in messages), f"{path}: {messages}")

    def allowed(self, path: str, text: str) -> None:
        self.assertEqual(self.found(path, text), [])

    def test_includes_point_downward(self) -> None:
        self.refused("horo/base/a.h", '#include "horo/net/socket.h"\n', "base must not include net")
        self.refused("horo/kernel/a.cc", '#include "horo/net/socket.h"\n', "kernel must not include net")
        self.refused("horo/kernel/a.cc", '#include "horo/device/device.h"\n', "kernel must not include device")
        self.refused("horo/net/a.cc", '#include "horo/device/device.h"\n', "net must not include device")
        self.refused("horo/rendezvous/a.cc", '#include "horo/transport/mesh.h"\n', "rendezvous must not include")
        self.refused("horo/transport/a.cc", '#include "horo/rendezvous/store.h"\n', "transport must not include")
        self.refused("horo/collective/a_test.cc", '#include "horo/group/group.h"\n', "collective must not include")
        self.refused("horo/ddp/a.cc", '#  include "horo/api/horo.h"\n', "ddp must not include api")
        self.allowed("horo/net/a.cc", '#include "horo/kernel/reduce.h"\n#include "horo/base/status.h"\n')
        self.allowed("horo/api/a.cc", '#include "horo/engine/engine.h"\n#include "horo/api/horo.h"\n')
        self.allowed("horo/group/a.cc", '#include "horo/rendezvous/store.h"\n')

    def test_a_violation_names_its_line(self) -> None:
        self.refused("horo/base/a.h", '\n\n#include "horo/net/socket.h"\n', "horo/base/a.h:3:")

    def test_members_of_a_family_are_apart(self) -> None:
        self.refused("horo/transport/shm/a.cc", '#include "horo/transport/tcp/b.h"\n', "shm must not include tcp")
        self.refused("horo/collective/ring/a.cc", '#include "horo/collective/tree/b.h"\n', "ring must not include tree")
        self.allowed("horo/transport/shm/a.cc", '#include "horo/transport/shm/b.h"\n#include "horo/transport/mesh.h"\n')
        self.allowed("horo/transport/shm/a_test.cc", '#include "horo/transport/testing/suite.h"\n')

    def test_public_headers_include_only_each_other(self) -> None:
        self.refused("horo/api/horo.hpp", '#include "horo/base/status.h"\n', "not installed")
        self.allowed("horo/api/horo.hpp", '#include "horo/api/horo.h"\n#include <span>\n')

    def test_socket_headers_belong_to_net(self) -> None:
        for header in ("sys/socket.h", "netinet/tcp.h", "sys/epoll.h", "poll.h", "sys/un.h", "arpa/inet.h"):
            self.refused("horo/transport/tcp/a.cc", f"#include <{header}>\n", "belongs to horo/net")
            self.allowed("horo/net/a.cc", f"#include <{header}>\n")

    def test_framework_names_stay_in_their_front_end(self) -> None:
        self.refused("horo/device/a.cc", "cudaStream_t stream;\n", "CUDA")
        self.refused("horo/device/a.cc", "#include <nccl.h>\n", "CUDA")
        self.refused("horo/device/a.cc", "ncclComm_t comm;\n", "CUDA")
        self.refused("cli/bench.cc", "MPI_Init(nullptr, nullptr);\n", "MPI")
        self.refused("cli/bench.cc", "#include <gloo/allreduce.h>\n", "gloo")
        self.refused("horo/ddp/a.cc", "#include <torch/torch.h>\n", "torch")
        self.refused("horo/ddp/a.cc", "torch::Tensor tensor;\n", "torch")
        self.refused("python/horo/ops.py", "import torch\n", "outside its front end")
        self.refused("python/horo/ops.py", "    from pyspark import SparkContext\n", "outside its front end")
        self.allowed("plugins/cuda/a.cc", "#include <nccl.h>\ncudaStream_t stream;\n")
        self.allowed("bench/peers/openmpi/a.cc", "#include <mpi.h>\nint x = MPI_Init(nullptr, nullptr);\n")
        self.allowed("python/horo/torch/__init__.py", "import torch\n")
        self.allowed("python/horo/backends/torch.py", "import torch\n")
        self.allowed("horo/rendezvous/a.cc", 'auto rank = find("OMPI_COMM_WORLD_RANK");  // set by MPI_Init, cudaX\n')

    def test_only_config_reads_the_environment(self) -> None:
        self.refused("horo/net/a.cc", 'auto x = std::getenv("X");\n', "only horo/base/config.cc")
        self.refused("cli/main.cc", "extern char** environ;\n", "only horo/base/config.cc")
        self.allowed("horo/base/config.cc", "char** e = environ;\n")

    def test_nobody_sleeps(self) -> None:
        self.refused("horo/net/a.cc", "std::this_thread::sleep_for(1ms);\n", "wait for a condition")
        self.refused("horo/net/a_test.cc", "usleep(1);\n", "wait for a condition")
        self.refused("tests/python/test_a.py", "time.sleep(1)\n", "wait for a condition")
        self.refused("horo/net/a.cc", "::sleep(seconds);\n", "wait for a condition")
        self.allowed("horo/net/a.cc", "// never sleep(1) here\nbool asleep(int);\nStatus sleep(Time now, Deadline at);")

    def test_no_path_of_one_machine(self) -> None:
        self.refused("docs/a.md", "see /home/" + "someone/file\n", "a path of one machine")
        self.refused("horo/net/a.cc", 'open("/root/' + 'x");\n', "a path of one machine")
        self.allowed("docs/a.md", "see https://example.org/home/page and docs/work/x and /proc/self\n")

    def test_files_stay_short(self) -> None:
        self.refused("horo/net/a.cc", "\n" * 501, "501 lines")
        self.allowed("horo/net/a.cc", "\n" * 500)

    def test_strings_and_comments_are_not_code(self) -> None:
        self.allowed(
            "horo/net/a.cc", '/* getenv\n usleep(1) */ auto x = "getenv(\\"sleep(1)\\")"; int y = 1\'000\'000;\n'
        )
        self.refused("horo/net/a.cc", "int y = 1'000; usleep(1); int z = 2'000;\n", "wait for a condition")


if __name__ == "__main__":
    unittest.main()
