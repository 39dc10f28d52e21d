package consume_test

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/consume"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// network carries messages between nodes of one process: a fake of package cluster/remote, whose own
// tests use NATS.
type network struct {
	mu    sync.Mutex
	nodes map[string]*node
	// cut are pairs of nodes between which nothing is carried.
	cut map[[2]string]bool
	// refuse decides which reports are not carried; nil for none.
	refuse func(from, to string, r *consume.Report) bool
	// takes counts the answered calls of Take.
	takes atomic.Int64
}

// refused reports whether a report is not carried.
func (n *network) refused(from, to string, r *consume.Report) bool {
	n.mu.Lock()
	refuse := n.refuse
	n.mu.Unlock()
	return refuse != nil && refuse(from, to, r)
}

// setRefuse sets which reports are not carried.
func (n *network) setRefuse(refuse func(from, to string, r *consume.Report) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refuse = refuse
}

func (n *network) add(x *node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.nodes == nil {
		n.nodes, n.cut = map[string]*node{}, map[[2]string]bool{}
	}
	n.nodes[x.name] = x
}

func (n *network) remove(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.nodes, name)
}

// setCut cuts the link between two nodes, or mends it.
func (n *network) setCut(a, b string, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[[2]string{a, b}], n.cut[[2]string{b, a}] = cut, cut
}

// find returns a node that can be reached.
func (n *network) find(from, to string) (*node, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	x := n.nodes[to]
	if x == nil || n.cut[[2]string{from, to}] {
		return nil, fault.New(fault.Unavailable, fault.StoreUnavailable, "node %s cannot be reached", to)
	}
	return x, nil
}

func (n *network) others(from string) (list []*node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, x := range n.nodes {
		if name != from && !n.cut[[2]string{from, name}] {
			list = append(list, x)
		}
	}
	return list
}

// peers are the other nodes as one node reaches them.
type peers struct {
	net  *network
	name string
}

var _ consume.Peers = (*peers)(nil)

func (p *peers) Settle(ctx context.Context, node string, r consume.SettleRequest) ([]error, error) {
	n, err := p.net.find(p.name, node)
	if err != nil {
		return nil, err
	}
	return n.HandleSettle(ctx, r)
}

func (p *peers) Extend(ctx context.Context, node string, r consume.ExtendRequest) ([]error, error) {
	n, err := p.net.find(p.name, node)
	if err != nil {
		return nil, err
	}
	return n.HandleExtend(ctx, r)
}

func (p *peers) Report(ctx context.Context, node string, r consume.Report) (consume.ReportAnswer, error) {
	n, err := p.net.find(p.name, node)
	if err == nil && p.net.refused(p.name, node, &r) {
		err = fault.New(fault.Unavailable, fault.StoreUnavailable, "the report is not carried")
	}
	if err != nil {
		return consume.ReportAnswer{}, err
	}
	return n.HandleReport(ctx, r)
}

func (p *peers) Take(ctx context.Context, node string, r consume.TakeRequest) ([]int, error) {
	n, err := p.net.find(p.name, node)
	if err != nil {
		return nil, err
	}
	defer p.net.takes.Add(1)
	return n.HandleTake(ctx, r)
}

func (p *peers) Deliver(ctx context.Context, node string, r consume.DeliverRequest) ([]consume.Token, error) {
	n, err := p.net.find(p.name, node)
	if err != nil {
		return nil, err
	}
	return n.HandleDeliver(ctx, r)
}

func (p *peers) Ended(_ context.Context, node string, r consume.EndedNotice) error {
	n, err := p.net.find(p.name, node)
	if err == nil {
		n.HandleEnded(r)
	}
	return err
}

func (p *peers) Cancel(ctx context.Context, node string, r consume.CancelRequest) ([]error, error) {
	n, err := p.net.find(p.name, node)
	if err != nil {
		return nil, err
	}
	return n.HandleCancel(ctx, r)
}

func (p *peers) Retry(ctx context.Context, node string, r consume.RetryRequest) (int, error) {
	n, err := p.net.find(p.name, node)
	if err != nil {
		return 0, err
	}
	return n.HandleRetry(ctx, r)
}

func (p *peers) Session(ctx context.Context, r consume.SessionRequest) (consume.SessionAnswer, bool, error) {
	for _, n := range p.net.others(p.name) {
		if a, found := n.HandleSession(ctx, r); found {
			return a, true, nil
		}
	}
	return consume.SessionAnswer{}, false, nil
}

func (p *peers) Sessions(ctx context.Context, topic, group string) (list []qlog.SessionInfo, _ []string, _ error) {
	for _, n := range p.net.others(p.name) {
		list = append(list, n.HandleSessions(ctx, topic, group)...)
	}
	return list, nil, nil
}

func (p *peers) AnnounceHolder(r consume.HolderNotice) error {
	for _, n := range p.net.others(p.name) {
		n.HandleHolder(r)
	}
	return nil
}

func (p *peers) OfferSpare(r consume.SpareNotice) error {
	for _, n := range p.net.others(p.name) {
		n.HandleSpare(r)
	}
	return nil
}

func (p *peers) Connected() bool { return len(p.net.others(p.name)) > 0 }
