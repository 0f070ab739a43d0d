//go:build unix

package fences

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"
)

// TestMain runs the tests and ends their servers. In a process started by the tests
// TestMain is the keeper or the orphan.
func TestMain(m *testing.M) {
	var err error
	switch dir := os.Getenv(keptDir); {
	case dir != "":
		err = keep(dir)
	case os.Getenv(orphan) != "":
		err = beOrphan()
	default:
		os.Exit(runTests(m))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runTests(m *testing.M) int {
	code := m.Run()
	for _, s := range []*server{postgres, mariadb, redis, objects} {
		s.end()
	}
	return code
}

// A server is a database server, started once for all tests.
type server struct {
	name  string
	start func(dir string, port int) (*exec.Cmd, error)
	ready func(port int) error

	once   sync.Once
	dir    string
	port   int
	keeper *exec.Cmd
	input  io.Closer // the keeper's
	err    error
}

// require starts the server and returns the port.
func (s *server) require(tb testing.TB) (port int) {
	tb.Helper()
	s.once.Do(func() { s.err = s.begin() })
	switch {
	case errors.Is(s.err, exec.ErrNotFound) && os.Getenv("WARDMOTE_FENCES") != "all":
		tb.Skipf("%s is not installed", s.name) // CI installs it, and lets nothing be left out
	case s.err != nil:
		tb.Fatalf("%s: %v", s.name, s.err)
	}
	return s.port
}

func (s *server) begin() error {
	dir, err := os.MkdirTemp("", "wardmote-"+s.name)
	if err != nil {
		return err
	}
	s.dir = dir
	if s.port, err = freePort(); err != nil {
		return err
	}
	cmd, err := s.start(dir, s.port)
	if err != nil {
		return err
	}
	keeper, err := keeperOf(cmd, dir)
	if err != nil {
		return err
	}
	if s.input, err = keeper.StdinPipe(); err != nil {
		return err
	}
	if err := keeper.Start(); err != nil {
		return err
	}
	s.keeper = keeper
	deadline := time.Now().Add(time.Minute)
	for {
		err := s.ready(s.port)
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not ready within a minute: %w", err)
		}
		time.Sleep(50 * time.Millisecond) // another process: there is no event
	}
}

func (s *server) end() {
	if s.keeper != nil {
		_ = s.input.Close()
		_ = s.keeper.Wait()
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// find looks for a program in PATH and in other directories.
func find(program string, patterns ...string) (string, error) {
	for _, p := range patterns {
		found, _ := filepath.Glob(filepath.Join(p, program))
		slices.Sort(found)
		if len(found) > 0 {
			return found[len(found)-1], nil
		}
	}
	return exec.LookPath(program)
}

// asUser returns a command. If the test is root, the command runs as a user of this host,
// who becomes the owner of the directory: some servers refuse to run as root.
func asUser(name, dir, program string, args ...string) (*exec.Cmd, error) {
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	if os.Getuid() != 0 {
		return cmd, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		if u, err = user.Lookup("nobody"); err != nil {
			return nil, err
		}
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return nil, err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	return cmd, filepath.Walk(dir, func(path string, _ os.FileInfo, err error) error {
		return errors.Join(err, os.Lchown(path, uid, gid))
	})
}

// run runs a command to its end.
func run(cmd *exec.Cmd) error {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, out.Bytes())
	}
	return nil
}

var postgres = &server{
	name: "postgres",
	start: func(dir string, port int) (*exec.Cmd, error) {
		const bins = "/usr/lib/postgresql/*/bin"
		initdb, err := find("initdb", bins)
		if err != nil {
			return nil, err
		}
		program, err := find("postgres", bins)
		if err != nil {
			return nil, err
		}
		data := filepath.Join(dir, "data")
		initialize, err := asUser("postgres", dir, initdb, "-D", data, "-U", "wardmote", "-A", "trust", "-E", "UTF8", "--no-sync")
		if err != nil {
			return nil, err
		}
		if err := run(initialize); err != nil {
			return nil, err
		}
		return asUser("postgres", dir, program, "-D", data, "-p", strconv.Itoa(port), "-c", "listen_addresses=127.0.0.1",
			"-c", "unix_socket_directories="+dir, "-c", "max_connections=200")
	},
	ready: func(port int) error { return ping("pgx", postgresDSN(port)) },
}

func postgresDSN(port int) string {
	return fmt.Sprintf("postgres://wardmote@127.0.0.1:%d/postgres?sslmode=disable", port)
}

var mariadb = &server{
	name: "mariadb",
	start: func(dir string, port int) (*exec.Cmd, error) {
		program, err := find("mariadbd", "/usr/sbin")
		if err != nil {
			return nil, err
		}
		install, err := find("mariadb-install-db")
		if err != nil {
			return nil, err
		}
		data := filepath.Join(dir, "data")
		initialize, err := asUser("mysql", dir, install, "--no-defaults", "--datadir="+data, "--auth-root-authentication-method=normal", "--skip-test-db")
		if err != nil {
			return nil, err
		}
		if err := run(initialize); err != nil {
			return nil, err
		}
		return asUser("mysql", dir, program, "--no-defaults", "--datadir="+data, "--port="+strconv.Itoa(port),
			"--bind-address=127.0.0.1", "--socket="+filepath.Join(dir, "s"), "--pid-file="+filepath.Join(dir, "pid"), "--max-connections=200")
	},
	ready: func(port int) error { return ping("mysql", mysqlDSN(port)) },
}

func mysqlDSN(port int) string { return fmt.Sprintf("root@tcp(127.0.0.1:%d)/mysql", port) }

var redis = &server{
	name: "redis",
	start: func(dir string, port int) (*exec.Cmd, error) {
		program, err := find("redis-server")
		if err != nil {
			return nil, err
		}
		return asUser("redis", dir, program, "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir,
			"--save", "", "--appendonly", "yes", "--appendfsync", "always")
	},
	ready: func(port int) error {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			err = c.Close()
		}
		return err
	},
}

func ping(driver, dsn string) error {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return db.PingContext(ctx)
}
