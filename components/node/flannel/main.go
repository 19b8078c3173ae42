// Command flanneld carries packets between the nodes of a cluster, by flannel's own packages: the node's subnet from its Kubernetes Node, vxlan
// or routes to the other nodes, masquerading by iptables. flannel's own command has the backends of clouds besides, whose modules are not to be
// had everywhere.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/flannel-io/flannel/pkg/backend"
	_ "github.com/flannel-io/flannel/pkg/backend/hostgw"
	_ "github.com/flannel-io/flannel/pkg/backend/vxlan"
	"github.com/flannel-io/flannel/pkg/ip"
	"github.com/flannel-io/flannel/pkg/ipmatch"
	"github.com/flannel-io/flannel/pkg/subnet/kube"
	"github.com/flannel-io/flannel/pkg/trafficmngr/iptables"
)

// Where its own command, and whoever looks for flannel on a node, expects them.
const (
	annotations = "flannel.alpha.coreos.com"
	network     = "/etc/kube-flannel/net-conf.json"
	subnetFile  = "/run/flannel/subnet.env"
)

// Seconds between two looks whether the rules are still there.
const resync = 5

func main() {
	address := flag.String("iface", "", "address of this node among the others")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *address); err != nil {
		fmt.Fprintln(os.Stderr, "flanneld:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, address string) error {
	subnets, err := kube.NewSubnetManager(ctx, "", "", annotations, network, true)
	if err != nil {
		return fmt.Errorf("subnets: %w", err)
	}
	config, err := subnets.GetNetworkConfig(ctx)
	if err != nil {
		return fmt.Errorf("network: %w", err)
	}
	family, err := ipmatch.GetIPFamily(config.EnableIPv4, config.EnableIPv6)
	if err != nil {
		return err
	}
	link, err := ipmatch.LookupExtIface(address, "", "", family, ipmatch.PublicIPOpts{})
	if err != nil {
		return fmt.Errorf("interface: %w", err)
	}
	kind, err := backend.NewManager(ctx, subnets, link).GetBackend(config.BackendType)
	if err != nil {
		return fmt.Errorf("backend: %w", err)
	}
	var running sync.WaitGroup
	lease, err := kind.RegisterNetwork(ctx, &running, config)
	if err != nil {
		return fmt.Errorf("registration: %w", err)
	}
	rules := &iptables.IPTablesManager{}
	if err := rules.Init(ctx); err != nil {
		return err
	}
	// No earlier subnet is known, so rules of one are looked for and made anew.
	err = rules.SetupAndEnsureMasqRules(ctx, config.Network, ip.IP4Net{}, ip.IP4Net{}, config.IPv6Network, ip.IP6Net{}, ip.IP6Net{},
		lease.Lease(), resync, false)
	if err != nil {
		return fmt.Errorf("masquerading: %w", err)
	}
	rules.SetupAndEnsureForwardRules(ctx, config.Network, config.IPv6Network, resync)
	if err := subnets.HandleSubnetFile(subnetFile, config, true, lease.Lease().Subnet, lease.Lease().IPv6Subnet, lease.MTU()); err != nil {
		return fmt.Errorf("%s: %w", subnetFile, err)
	}
	running.Go(func() { lease.Run(ctx) })
	if err := subnets.CompleteLease(ctx, lease.Lease(), &running); err != nil {
		return fmt.Errorf("lease: %w", err)
	}
	running.Wait()
	return nil
}
