// A proxy with the defaults of grpc-go that is told of routes. It tells on standard output how many it has, over how many
// connections it was told, and how often.
//
// usage: route_taker PORT
package main

import (
	"context"
	"net"
	"os"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"tenure/admin"
)

type taker struct {
	admin.UnimplementedControlPlaneServer
	sync.Mutex
	routes      map[string]string
	versions    map[string]uint64
	connections map[string]bool
	calls       int
}

func (t *taker) UpdateMailboxRoute(ctx context.Context, update *admin.MailboxRouteUpdate) (*admin.MailboxRouteUpdateAck, error) {
	t.take(ctx, update.MailboxId, update.Version, &update.Status)
	return &admin.MailboxRouteUpdateAck{Success: true}, nil
}

func (t *taker) RemoveMailboxRoute(ctx context.Context, removal *admin.MailboxRouteRemoval) (*admin.MailboxRouteRemovalAck, error) {
	t.take(ctx, removal.MailboxId, removal.Version, nil)
	return &admin.MailboxRouteRemovalAck{Success: true}, nil
}

// Without a status the mailbox has no route any more.
func (t *taker) take(ctx context.Context, mailbox string, version uint64, status *string) {
	t.Lock()
	defer t.Unlock()
	t.calls++
	if caller, ok := peer.FromContext(ctx); ok {
		t.connections[caller.Addr.String()] = true
	}
	if version < t.versions[mailbox] {
		return
	}
	t.versions[mailbox] = version
	if status == nil {
		delete(t.routes, mailbox)
	} else {
		t.routes[mailbox] = *status
	}
	degraded := 0
	for _, status := range t.routes {
		if status == "degraded" {
			degraded++
		}
	}
	say(object{"routes": len(t.routes), "degraded": degraded, "connections": len(t.connections), "calls": t.calls})
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Args[1])
	if err != nil {
		panic(err)
	}
	server := grpc.NewServer()
	taker := &taker{routes: map[string]string{}, versions: map[string]uint64{}, connections: map[string]bool{}}
	admin.RegisterControlPlaneServer(server, taker)
	panic(server.Serve(listener))
}
