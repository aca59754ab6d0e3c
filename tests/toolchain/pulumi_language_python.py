"""A language host for Python where the official one is not installed: enough of it for up, preview, refresh, destroy.

The engine starts it with its own address as the last argument, reads a port from its output, and asks it over gRPC
(LanguageRuntime) to run the program. The program's own process is Pulumi's `pulumi-language-python-exec`, as with the
official host. Packages are not installed: `InstallDependencies` says so.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import IO

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc, language_pb2, language_pb2_grpc, plugin_pb2

# The exit status with which the runner says that it has shown an error already.
ERROR_WAS_SHOWN = 32


class LanguageHost(language_pb2_grpc.LanguageRuntimeServicer):
    """The calls that an operation makes."""

    def __init__(self, engine_address: str) -> None:
        self._engine = engine_address

    def Handshake(self, request, context):
        self._engine = request.engine_address or self._engine
        return language_pb2.LanguageHandshakeResponse()

    def GetPluginInfo(self, request, context):
        return plugin_pb2.PluginInfo(version=importlib.metadata.version("pulumi"))

    def GetRequiredPlugins(self, request, context):
        return language_pb2.GetRequiredPluginsResponse()

    def GetRequiredPackages(self, request, context):
        """Every installed distribution that says it is a provider's SDK, as the official host finds them."""
        found = []
        for distribution in importlib.metadata.distributions():
            for file in distribution.files or ():
                if file.name == "pulumi-plugin.json":
                    about = json.loads(file.read_text())
                    if about.get("resource"):
                        version = (about.get("version") or distribution.version).removeprefix("v")
                        found.append(
                            plugin_pb2.PackageDependency(name=about["name"], kind="resource", version=f"v{version}")
                        )
        return language_pb2.GetRequiredPackagesResponse(packages=found)

    def GetProgramDependencies(self, request, context):
        found = [
            language_pb2.DependencyInfo(name=distribution.name, version=distribution.version)
            for distribution in importlib.metadata.distributions()
        ]
        return language_pb2.GetProgramDependenciesResponse(dependencies=found)

    def About(self, request, context):
        return language_pb2.AboutResponse(executable=interpreter(request.info), version=platform.python_version())

    def InstallDependencies(self, request, context) -> Iterator[language_pb2.InstallDependenciesResponse]:
        yield language_pb2.InstallDependenciesResponse(stdout=b"packages are the set-up's: run `make set-up`\n")

    def RuntimeOptionsPrompts(self, request, context):
        return language_pb2.RuntimeOptionsResponse()

    def Cancel(self, request, context):
        return empty_pb2.Empty()

    def Run(self, request, context):
        """Run the program to its end; its output becomes diagnostics of the engine."""
        environ = {
            **os.environ,
            "PULUMI_CONFIG": json.dumps(dict(request.config)),
            "PULUMI_CONFIG_SECRET_KEYS": json.dumps(list(request.configSecretKeys)),
        }
        folder = request.pwd or request.info.program_directory
        process = subprocess.Popen(
            self._command(request), cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        context.add_callback(lambda: process.poll() is None and process.terminate())
        with grpc.insecure_channel(self._engine) as channel, ThreadPoolExecutor(2) as pool:
            log = engine_pb2_grpc.EngineStub(channel).Log
            pool.submit(forward, process.stdout, log, engine_pb2.INFO)
            pool.submit(forward, process.stderr, log, engine_pb2.WARNING)
        status = process.wait()
        if status == 0:
            return language_pb2.RunResponse()
        if status == ERROR_WAS_SHOWN:
            return language_pb2.RunResponse(bail=True)
        return language_pb2.RunResponse(error=f"the program ended with status {status}")

    def _command(self, request) -> list[str]:
        info = request.info
        runner = shutil.which("pulumi-language-python-exec")
        if runner is None:
            raise FileNotFoundError("pulumi-language-python-exec is not on PATH")
        arguments = {
            "monitor": request.monitor_address,
            "engine": self._engine,
            "project": request.project,
            "stack": request.stack,
            "organization": request.organization,
            "root_directory": info.root_directory,
            "pwd": request.pwd or info.program_directory,
            "dry_run": "true" if request.dryRun else "false",
            "parallel": str(request.parallel),
        }
        flags = [part for name, value in arguments.items() if value for part in (f"--{name}", value)]
        program = os.path.normpath(os.path.join(info.program_directory, info.entry_point))
        return [interpreter(info), "-u", runner, *flags, program, *request.args]


def interpreter(info) -> str:
    """The Python of the project: of its virtual environment where it names one."""
    virtualenv = info.options.fields["virtualenv"].string_value if "virtualenv" in info.options.fields else ""
    return os.path.join(info.root_directory, virtualenv, "bin", "python") if virtualenv else sys.executable


def forward(stream: IO[str], log, severity: int) -> None:
    """Every line of a stream, as a diagnostic."""
    for line in stream:
        log(engine_pb2.LogRequest(severity=severity, message=line, urn=""))


def main() -> None:
    server = grpc.server(ThreadPoolExecutor(16))
    language_pb2_grpc.add_LanguageRuntimeServicer_to_server(LanguageHost(sys.argv[-1]), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    over.wait()
    server.stop(0.1)


if __name__ == "__main__":
    main()
