"""The node's programs: the command of each, and the files that configure them.

Inside the node its state folder is always HOME, so no file here depends on where the cache lies.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.toolchain.kubernetes.addresses import Addresses
from tests.toolchain.kubernetes.programs import Toolchain

HOME = "/run/node"
CONTAINERD = f"{HOME}/containerd/containerd.sock"
ETCD = "http://127.0.0.1:2379"
# Started first; the others need an API server that answers.
FIRST = ("etcd", "kube-apiserver", "containerd", "registry")
THEN = ("kubelet", "kube-controller-manager", "kube-scheduler", "kube-proxy")
POLICIES = "kube-router"
# Started by Metrics.
METRICS = ("metrics-server", "prometheus")
METRICS_PORT, PROMETHEUS_PORT = 4443, 9090
PROMETHEUS_CONFIG = "conf/prometheus.json"
CTR = ("ctr", "--address", CONTAINERD, "--namespace", "k8s.io")


def commands(toolchain: Toolchain, addresses: Addresses) -> dict[str, list[str]]:
    """Name of a program → its command line."""
    flags: dict[str, dict[str, str]] = {
        "etcd": {
            "data-dir": f"{HOME}/etcd",
            # Nothing here outlives the machine.
            "unsafe-no-fsync": "true",
            "listen-client-urls": ETCD,
            "advertise-client-urls": ETCD,
            "listen-peer-urls": "http://127.0.0.1:2380",
            "initial-advertise-peer-urls": "http://127.0.0.1:2380",
            "initial-cluster": "default=http://127.0.0.1:2380",
            "log-level": "warn",
        },
        "kube-apiserver": _apiserver(addresses),
        "kube-controller-manager": _controllers(addresses),
        "kube-scheduler": {**_login("kube-scheduler"), "leader-elect": "false"},
        "kubelet": {
            "config": f"{HOME}/conf/kubelet.json",
            "kubeconfig": f"{HOME}/pki/kubelet.kubeconfig",
            "root-dir": f"{HOME}/kubelet",
            "cert-dir": f"{HOME}/pki",
            "hostname-override": addresses.name,
            "node-ip": addresses.node,
        },
        "kube-proxy": {"config": f"{HOME}/conf/proxy.json"},
        POLICIES: {
            "kubeconfig": f"{HOME}/pki/admin.kubeconfig",
            "run-router": "false",
            "run-service-proxy": "false",
            "run-loadbalancer": "false",
            "run-firewall": "true",
            "hostname-override": addresses.name,
            "service-cluster-ip-range": addresses.services,
            "health-port": "20244",
        },
        "metrics-server": {
            **_login("admin"),
            "secure-port": str(METRICS_PORT),
            "tls-cert-file": f"{HOME}/pki/metrics.crt",
            "tls-private-key-file": f"{HOME}/pki/metrics.key",
            "kubelet-certificate-authority": f"{HOME}/pki/ca.crt",
            "kubelet-preferred-address-types": "InternalIP",
            "metric-resolution": "10s",
            "kubelet-request-timeout": "5s",
        },
    }
    result = {
        name: [toolchain.program(name), *(f"--{flag}={value}" for flag, value in values.items())]
        for name, values in flags.items()
    }
    result["containerd"] = ["containerd", "--config", f"{HOME}/conf/containerd.toml"]
    result["prometheus"] = [
        "prometheus",
        f"--config.file={HOME}/{PROMETHEUS_CONFIG}",
        f"--storage.tsdb.path={HOME}/prometheus",
        f"--web.listen-address={addresses.node}:{PROMETHEUS_PORT}",
        "--log.level=warn",
    ]
    result["registry"] = [toolchain.program("registry"), "serve", f"{HOME}/conf/registry.json"]
    return result


def _login(name: str) -> dict[str, str]:
    file = f"{HOME}/pki/{name}.kubeconfig"
    return {"kubeconfig": file, "authentication-kubeconfig": file, "authorization-kubeconfig": file}


def _apiserver(addresses: Addresses) -> dict[str, str]:
    pki = f"{HOME}/pki"
    return {
        "etcd-servers": ETCD,
        "secure-port": "6443",
        "advertise-address": addresses.node,
        "service-cluster-ip-range": addresses.services,
        "allow-privileged": "true",
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "client-ca-file": f"{pki}/ca.crt",
        "tls-cert-file": f"{pki}/apiserver.crt",
        "tls-private-key-file": f"{pki}/apiserver.key",
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": f"{pki}/accounts.pub",
        "service-account-signing-key-file": f"{pki}/accounts.key",
        "kubelet-certificate-authority": f"{pki}/ca.crt",
        "kubelet-client-certificate": f"{pki}/apiserver-client.crt",
        "kubelet-client-key": f"{pki}/apiserver-client.key",
        "kubelet-preferred-address-types": "InternalIP",
        "requestheader-client-ca-file": f"{pki}/front-proxy-ca.crt",
        "requestheader-allowed-names": "front-proxy",
        "requestheader-username-headers": "X-Remote-User",
        "requestheader-group-headers": "X-Remote-Group",
        "requestheader-extra-headers-prefix": "X-Remote-Extra-",
        "proxy-client-cert-file": f"{pki}/front-proxy.crt",
        "proxy-client-key-file": f"{pki}/front-proxy.key",
    }


def _controllers(addresses: Addresses) -> dict[str, str]:
    pki = f"{HOME}/pki"
    return {
        **_login("kube-controller-manager"),
        "leader-elect": "false",
        "use-service-account-credentials": "true",
        "service-account-private-key-file": f"{pki}/accounts.key",
        "root-ca-file": f"{pki}/ca.crt",
        "cluster-signing-cert-file": f"{pki}/ca.crt",
        "cluster-signing-key-file": f"{pki}/ca.key",
        "cluster-cidr": addresses.pods,
        "service-cluster-ip-range": addresses.services,
        "allocate-node-cidrs": "false",
        # So is a load.
        "horizontal-pod-autoscaler-sync-period": "3s",
        # A node that is gone is noticed within a test's patience.
        "node-monitor-period": "2s",
        "node-monitor-grace-period": "20s",
    }


def write_configuration(state: Path, addresses: Addresses, resolvers: str = "127.0.0.1") -> None:
    """Write every configuration file below the state folder."""
    files: dict[str, str] = {
        "conf/containerd.toml": CONTAINERD_TOML,
        f"conf/registries/{addresses.registry}/hosts.toml": HOSTS_TOML.format(address=f"http://{addresses.registry}"),
        "conf/resolv.conf": f"nameserver {resolvers}\n",
        "conf/kubelet.json": json.dumps(_kubelet(addresses), indent=1),
        "conf/proxy.json": json.dumps(_proxy(addresses), indent=1),
        "conf/cni/10-bridge.conflist": json.dumps(_bridge(addresses), indent=1),
        "conf/registry.json": json.dumps(_registry(addresses), indent=1),
    }
    for name, text in files.items():
        (state / name).parent.mkdir(parents=True, exist_ok=True)
        (state / name).write_text(text)


def _kubelet(addresses: Addresses) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "x509": {"clientCAFile": f"{HOME}/pki/ca.crt"},
            "webhook": {"enabled": True},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{HOME}/pki/kubelet-server.crt",
        "tlsPrivateKeyFile": f"{HOME}/pki/kubelet-server.key",
        "containerRuntimeEndpoint": f"unix://{CONTAINERD}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{addresses.name}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "clusterDNS": [addresses.dns],
        "clusterDomain": "cluster.local",
        "resolvConf": f"{HOME}/conf/resolv.conf",
        "podLogsDir": f"{HOME}/pods",
        "volumePluginDir": f"{HOME}/plugins",
        "serializeImagePulls": False,
        "nodeStatusUpdateFrequency": "5s",
        # How long a changed ConfigMap or Secret may take to reach a mounted file.
        "syncFrequency": "10s",
        # A full disk or little memory of a developer's machine is not what is tested.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "imagefs.available": "1%",
            "nodefs.inodesFree": "1%",
        },
    }


def _proxy(addresses: Addresses) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": f"{HOME}/pki/kube-proxy.kubeconfig"},
        "clusterCIDR": addresses.pods,
        "hostnameOverride": addresses.name,
        "mode": "iptables",
        # Changes are few here, and each is waited for.
        "iptables": {"minSyncPeriod": "0s"},
        # These are of the whole machine, and a network namespace may not set them.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }


def _bridge(addresses: Addresses) -> dict[str, Any]:
    ipam = {
        "type": "host-local",
        "dataDir": f"{HOME}/addresses",
        "ranges": [[{"subnet": addresses.pods}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": True, "hairpinMode": True, "ipam": ipam}
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "0.4.0", "name": "bridge", "plugins": [bridge, ports]}


def _registry(addresses: Addresses) -> dict[str, Any]:
    return {
        "version": 0.1,
        "log": {"level": "warn", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": f"{HOME}/kept/registry"}, "delete": {"enabled": True}},
        "http": {"addr": addresses.registry},
    }


# Plain HTTP must be said for a registry that is not on localhost.
HOSTS_TOML = """\
server = "{address}"
[host."{address}"]
  capabilities = ["pull", "resolve"]
"""
CONTAINERD_TOML = f"""\
version = 2
root = "{HOME}/kept/images"
state = "{HOME}/containerd"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.opt",
]
[grpc]
  address = "{CONTAINERD}"
[debug]
  level = "warn"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{Toolchain.reference("pause")}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{HOME}/conf/registries"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{HOME}/conf/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
"""
