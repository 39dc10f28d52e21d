package rig

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// The addresses of a namespaced fleet. The rig's namespace has a bridge and all engines. Node i has
// its own namespace, with one end of a veth pair at nodeHost(i); the other end is in the bridge. In
// the node's namespace the engines' addresses are local: the rig listens on them and forwards to
// the real engines.
const (
	bridge     = "rig0"
	bridgeHost = "10.77.0.1"
	redisHost  = "10.77.0.21"

	apiPort = "8080"
	opsPort = "8081"
)

func mongoHost(i int) string { return fmt.Sprintf("10.77.0.%d", 11+i) }
func natsHost(i int) string  { return fmt.Sprintf("10.77.0.%d", 31+i) }
func nodeHost(i int) string  { return fmt.Sprintf("10.77.0.%d", 100+i) }

// layout holds every address of a fleet and its secret.
type layout struct {
	Mongo       []string `json:"mongo"`
	Redis       string   `json:"redis"`
	NATS        []string `json:"nats"`
	NATSCluster []string `json:"nats_cluster"`
	Nodes       []string `json:"nodes"`
	Ops         []string `json:"ops"`
	// Secret signs tokens. It is stored here because it must stay the same when the fleet starts
	// again.
	Secret string `json:"secret"`
}

// namespacedLayout returns the addresses of a namespaced fleet.
func namespacedLayout(o *Options) *layout {
	l := &layout{Redis: redisHost + ":6379"}
	for i := range o.MongoMembers {
		l.Mongo = append(l.Mongo, mongoHost(i)+":27017")
	}
	for i := range o.NATSServers {
		l.NATS = append(l.NATS, natsHost(i)+":4222")
		l.NATSCluster = append(l.NATSCluster, natsHost(i)+":6222")
	}
	for i := range o.Nodes {
		l.Nodes = append(l.Nodes, nodeHost(i)+":"+apiPort)
		l.Ops = append(l.Ops, nodeHost(i)+":"+opsPort)
	}
	return l
}

// hosts returns the engines' addresses without ports.
func (l *layout) hosts() []string {
	var hosts []string
	for _, addrs := range [][]string{l.Mongo, {l.Redis}, l.NATS} {
		for _, addr := range addrs {
			host, _, _ := strings.Cut(addr, ":")
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// engine returns the addresses of an engine's servers.
func (l *layout) engine(e Engine) []string {
	switch e {
	case EngineMongo:
		return l.Mongo
	case EngineNATS:
		return l.NATS
	case EngineRedis:
		return []string{l.Redis}
	default:
		return nil
	}
}

// createBridge sets up this process's namespace with the bridge and the engines' addresses.
func createBridge(ctx context.Context, l *layout) error {
	if !InNamespace() {
		return errors.New("a namespaced fleet requires its own namespace: see RunInNamespace")
	}
	// Deleting the bridge removes what an earlier fleet of this process left.
	_ = runIP(ctx, "link del "+bridge)
	commands := []string{
		"link set lo up", "link add " + bridge + " type bridge", "addr add " + bridgeHost + "/24 dev " + bridge,
		"link set " + bridge + " up",
	}
	for _, host := range l.hosts() {
		commands = append(commands, "addr add "+host+"/24 dev "+bridge)
	}
	return runIP(ctx, commands...)
}

// createNodeNetwork creates a node's namespace and veth pair, and returns the name of the pair's
// end in the bridge.
func createNodeNetwork(ctx context.Context, i int, l *layout) (ns *Namespace, link string, err error) {
	ns, err = NewNamespace(ctx, fmt.Sprintf("node-%d", i))
	if err != nil {
		return nil, "", err
	}
	link = fmt.Sprintf("node%d", i)
	// The end in the bridge has no addresses, so nothing waits for one to settle.
	err = runIP(ctx, fmt.Sprintf("link add %s type veth peer name eth0 netns %s", link, ns.path()),
		fmt.Sprintf("link set %s master %s up", link, bridge))
	if err == nil {
		commands := []string{"addr add " + nodeHost(i) + "/24 dev eth0", "link set eth0 up"}
		for _, host := range l.hosts() {
			commands = append(commands, "addr add "+host+"/32 dev lo")
		}
		err = ns.IP(ctx, commands...)
	}
	if err != nil {
		return nil, "", errors.Join(err, ns.Close())
	}
	return ns, link, nil
}

// linkNode creates the proxies between a node and the engines.
func linkNode(ctx context.Context, ns *Namespace, l *layout) (map[Engine]*Proxy, error) {
	proxies := make(map[Engine]*Proxy, len(Engines))
	for _, e := range Engines {
		p := NewProxy()
		proxies[e] = p
		for _, addr := range l.engine(e) {
			listener, err := ns.Listen(ctx, addr)
			if err != nil {
				for _, p := range proxies {
					p.Close()
				}
				return nil, err
			}
			p.Serve(listener, DialTo("tcp", addr))
		}
	}
	return proxies, nil
}
