// What runs on a booted node of the stand-in besides Kubernetes itself, pinned. A module of its own, because containerd, flannel and CoreDNS are
// made for an older Kubernetes API than the components are.
//
// `cargo xtask components --node` builds what is named here; nothing of this module is linked into any program of ours.
module gpuaas/components/node

go 1.26.0

tool (
	github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2
	github.com/containernetworking/plugins/plugins/ipam/host-local
	github.com/containernetworking/plugins/plugins/main/bridge
	github.com/containernetworking/plugins/plugins/main/loopback
	github.com/containernetworking/plugins/plugins/meta/portmap
	github.com/opencontainers/runc
)

require (
	github.com/containerd/containerd/v2 v2.2.3
	github.com/containernetworking/plugins v1.9.1
	github.com/coredns/coredns v1.14.1
	github.com/flannel-io/flannel v0.28.4
	github.com/opencontainers/runc v1.4.3
)
