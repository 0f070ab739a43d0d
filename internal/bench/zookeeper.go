package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/go-zookeeper/zk"
)

// zookeeperJars names the libraries of Debian's package zookeeper.
const zookeeperJars = "/usr/share/java/zookeeper.jar"

func zookeeperThere() error {
	if _, err := exec.LookPath("java"); err != nil {
		return errors.New("no java")
	}
	if _, err := os.Stat(zookeeperJars); err != nil {
		return errors.New("no " + zookeeperJars + " (Debian's package zookeeper)")
	}
	return nil
}

// A zookeeper is three ZooKeeper processes.
type zookeeper struct {
	dir     string
	ports   []int // of the clients
	servers []*server
	clients []*zk.Conn
	proxies proxies
	release string // "3.8.0-…"
}

// startZooKeeper starts ZooKeeper, with or without the delay of the setting delayed.
func startZooKeeper(late bool) func(ctx context.Context, dir string) (system, error) {
	return func(ctx context.Context, dir string) (system, error) { return runZooKeeper(ctx, dir, late) }
}

func runZooKeeper(ctx context.Context, dir string, late bool) (system, error) {
	z := &zookeeper{dir: dir}
	ports, err := freePorts(9)
	if err != nil {
		return nil, err
	}
	for i := range 3 {
		at := filepath.Join(dir, fmt.Sprint("m", i))
		if err := os.MkdirAll(at, 0o700); err != nil {
			return nil, err
		}
		z.ports = append(z.ports, ports[3*i+2])
		config := fmt.Sprintf("tickTime=500\ninitLimit=20\nsyncLimit=10\ndataDir=%s\nclientPort=%d\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\nmaxClientCnxns=0\n4lw.commands.whitelist=srvr\n",
			at, z.ports[i])
		for j := range 3 {
			quorum := ports[3*j]
			if late && j != i { // each server sees the others behind proxies
				p, err := z.proxies.through(fmt.Sprint("127.0.0.1:", quorum))
				if err != nil {
					return nil, errors.Join(err, z.stop())
				}
				quorum = p.port()
			}
			config += fmt.Sprintf("server.%d=127.0.0.1:%d:%d\n", j+1, quorum, ports[3*j+1])
		}
		err := errors.Join(
			os.WriteFile(filepath.Join(at, "zoo.cfg"), []byte(config), 0o600),
			os.WriteFile(filepath.Join(at, "myid"), fmt.Appendln(nil, i+1), 0o600))
		if err != nil {
			return nil, errors.Join(err, z.stop())
		}
		s, err := z.run(i)
		if err != nil {
			return nil, errors.Join(err, z.stop())
		}
		z.servers = append(z.servers, s)
	}
	for i := range 3 {
		c, err := z.connect(ctx, z.ports[i])
		if err != nil {
			return nil, errors.Join(err, z.stop())
		}
		z.clients = append(z.clients, c)
	}
	if z.release, _, err = z.look(ctx, z.ports[0]); err != nil {
		return nil, errors.Join(err, z.stop())
	}
	return z, nil
}

// run starts server i, for the first time or again.
func (z *zookeeper) run(i int) (*server, error) {
	at := filepath.Join(z.dir, fmt.Sprint("m", i))
	return startServer(filepath.Join(at, "log"), "java", "-Xmx512m", "-cp", zookeeperJars+":"+at,
		"-Dzookeeper.log.threshold=ERROR", "org.apache.zookeeper.server.quorum.QuorumPeerMain", filepath.Join(at, "zoo.cfg"))
}

func (z *zookeeper) connect(ctx context.Context, port int) (*zk.Conn, error) {
	c, events, err := zk.Connect([]string{fmt.Sprint("127.0.0.1:", port)}, etcdTTL*time.Second, zk.WithLogger(noLog{}), zk.WithLogInfo(false))
	if err != nil {
		return nil, err
	}
	for {
		select {
		case e := <-events:
			if e.State == zk.StateHasSession {
				return c, nil
			}
		case <-ctx.Done():
			c.Close()
			return nil, fmt.Errorf("no session with the server at port %d: %w", port, ctx.Err())
		}
	}
}

// look asks the server at a port for its version and its mode.
func (z *zookeeper) look(ctx context.Context, port int) (release, mode string, err error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", fmt.Sprint("127.0.0.1:", port))
	if err != nil {
		return "", "", err
	}
	defer c.Close()
	if _, err := io.WriteString(c, "srvr"); err != nil {
		return "", "", err
	}
	answer, err := io.ReadAll(c)
	_, release, _ = strings.Cut(string(answer), "Zookeeper version: ")
	release, _, _ = strings.Cut(release, "-")
	_, mode, _ = strings.Cut(string(answer), "Mode: ")
	mode, _, _ = strings.Cut(mode, "\n")
	return release, mode, err
}

// caller returns a caller on the connection of its member. Goroutines of one connection
// are kept apart by go-zookeeper's lock.
func (z *zookeeper) caller(_ context.Context, at place, i int, _ bool) (caller, error) {
	if at != everywhere {
		return nil, errNotHad
	}
	return zookeeperCaller{z.clients[i%3]}, nil
}

// leader returns the one server that leads, when the others follow.
func (z *zookeeper) leader(ctx context.Context) (int, error) {
	return agreed(ctx, func() (int, bool) {
		leads, followers := -1, 0
		for i, port := range z.ports {
			switch _, mode, _ := z.look(ctx, port); mode {
			case "leader":
				leads = i
			case "follower":
				followers++
			}
		}
		return leads, leads >= 0 && followers == len(z.ports)-1
	})
}

func (z *zookeeper) kill(i int) {
	z.servers[i].cmd.Process.Kill()
	<-z.servers[i].done
}

func (z *zookeeper) signal(i int, s syscall.Signal) error { return z.servers[i].cmd.Process.Signal(s) }

// start starts servers again. The clients of the other servers' members, and then a
// grant, find out when they are ready.
func (z *zookeeper) start(_ context.Context, which ...int) error {
	for _, i := range which {
		s, err := z.run(i)
		if err != nil {
			return err
		}
		z.servers[i] = s
	}
	return nil
}

func (z *zookeeper) grant(ctx context.Context, i int, prefix string) (time.Time, error) {
	return grantBy(ctx, zookeeperCaller{z.clients[i]}, prefix)
}

func (z *zookeeper) fill(context.Context, int) error {
	return errNotMeasured
}

func (z *zookeeper) entries() uint64 { return 0 }

func (z *zookeeper) pids() []int {
	var pids []int
	for _, s := range z.servers {
		pids = append(pids, s.pid())
	}
	return pids
}

func (z *zookeeper) version() string {
	return z.release + ", go-zookeeper " + moduleVersion("github.com/go-zookeeper/zk")
}

func (z *zookeeper) stop() error {
	for _, c := range z.clients {
		c.Close()
	}
	return errors.Join(stopServers(z.servers), z.proxies.close())
}

type zookeeperCaller struct{ c *zk.Conn }

func (z zookeeperCaller) acquire(ctx context.Context, key string) (func(context.Context) error, error) {
	l := zk.NewLock(z.c, "/bench/"+key, zk.WorldACL(zk.PermAll))
	if err := l.Lock(); err != nil { // go-zookeeper's lock knows no context
		return nil, err
	}
	return func(context.Context) error { return l.Unlock() }, ctx.Err()
}

type noLog struct{}

func (noLog) Printf(string, ...any) {}
