// Clients of the control plane by grpc-go, each with a connection of its own. tests/python/plane_client.py is the same by grpcio.
//
// usage: plane_client
package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"tenure/admin"
	"tenure/prism"
	"tenure/routes"
)

const patience = 20 * time.Second
const every = time.Second

type client struct {
	connection *grpc.ClientConn
	sync.Mutex
	// Set while it calls again and again.
	stop   context.CancelFunc
	calls  int
	failed []string
	told   int
}

var clients sync.Map

func of(command object) *client {
	found, _ := clients.Load(command["client"])
	return found.(*client)
}

func text(command object, name string) string {
	value, _ := command[name].(string)
	return value
}

// Connects with the library's defaults, or with a ping every `ping_s` seconds, also without a call.
func open(command object) (interface{}, error) {
	options := []grpc.DialOption{grpc.WithInsecure()}
	if seconds, ok := command["ping_s"].(float64); ok {
		every := time.Duration(seconds) * time.Second
		pings := keepalive.ClientParameters{Time: every, PermitWithoutStream: true}
		options = append(options, grpc.WithKeepaliveParams(pings))
	}
	connection, err := grpc.Dial(text(command, "address"), options...)
	clients.Store(command["client"], &client{connection: connection})
	return nil, err
}

// Renews the lease of a mailbox, which it takes first if `take` is set; the name of the status.
func beat(command object) (interface{}, error) {
	within := patience
	if seconds, ok := command["within_s"].(float64); ok {
		within = time.Duration(seconds * float64(time.Second))
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	take, _ := command["take"].(bool)
	return of(command).beat(ctx, text(command, "mailbox"), "active", take), nil
}

func (c *client) beat(ctx context.Context, mailbox, how string, take bool) string {
	plane := admin.NewControlPlaneClient(c.connection)
	if take {
		wanted := &admin.AcquireLeaseRequest{MailboxId: mailbox, RunnerId: mailbox, TtlSeconds: 3600}
		answer, err := plane.AcquireLease(ctx, wanted)
		return outcome(err, answer.GetSuccess(), answer.GetMessage())
	}
	request := &admin.MailboxHeartbeatRequest{MailboxId: mailbox, RunnerId: mailbox, Status: how}
	answer, err := plane.MailboxHeartbeat(ctx, request)
	return outcome(err, answer.GetLeaseRenewed(), answer.GetMessage())
}

func outcome(err error, isDone bool, message string) string {
	if err != nil {
		return fmt.Sprintf("%v: %s", status.Code(err), status.Convert(err).Message())
	}
	if !isDone {
		return message
	}
	return "OK"
}

// Follows the routes, and from now on, once a second, changes its own and registers a proxy.
func work(command object) (interface{}, error) {
	c := of(command)
	ctx, cancel := context.WithCancel(context.Background())
	c.stop = cancel
	stream, err := routes.NewRoutesClient(c.connection).Watch(ctx, &routes.WatchRequest{})
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			_, err := stream.Recv()
			if ctx.Err() != nil {
				return
			}
			c.Lock()
			if err != nil {
				c.failed = append(c.failed, fmt.Sprint("the stream: ", err))
				c.Unlock()
				return
			}
			c.told++
			c.Unlock()
		}
	}()
	mailbox, address := text(command, "mailbox"), text(command, "proxy")
	go func() {
		for ctx.Err() == nil {
			c.Lock()
			number := c.calls
			c.Unlock()
			how := []string{"active", "degraded"}[number%2]
			within, done := context.WithTimeout(ctx, patience)
			said := c.beat(within, mailbox, how, false)
			registration := &prism.ProxyRegistration{ProxyId: mailbox, Address: address}
			ack, err := prism.NewControlPlaneClient(c.connection).RegisterProxy(within, registration)
			done()
			both := []string{said, outcome(err, ack.GetSuccess(), ack.GetMessage())}
			if ctx.Err() != nil {
				return
			}
			c.Lock()
			c.calls++
			for _, said := range both {
				if said != "OK" {
					c.failed = append(c.failed, said)
				}
			}
			c.Unlock()
			time.Sleep(every)
		}
	}()
	return nil, nil
}

// How often it has called, what failed, and how often it was told of routes.
func report(command object) (interface{}, error) {
	c := of(command)
	c.Lock()
	defer c.Unlock()
	failed := append([]string{}, c.failed...)
	return object{"calls": c.calls, "failed": failed, "told": c.told}, nil
}

// Ends the work.
func rest(command object) (interface{}, error) {
	of(command).stop()
	return nil, nil
}

func main() {
	serve(map[string]func(object) (interface{}, error){
		"open": open, "beat": beat, "work": work, "report": report, "rest": rest,
	})
}
