//go:build linux

package deploy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/wardmote/wardmote/fence"
)

// host plays docker compose for compose.yaml: each service is a real process at the
// address of the file, with its environment, user, health check, restart policy and
// grace period.
type host struct {
	t       *testing.T
	net     *network
	program string
	secret  string // the file
	began   time.Time
	up      map[string]*service
}

// service is a container of the file.
type service struct {
	name  string
	h     *host
	at    *place
	spec  *composeService
	grace time.Duration

	mu      sync.Mutex
	process *os.Process // nil between the end of a process and the next start
	down    bool        // stopped by hand: not started again
	starts  int
	exits   []string
	log     bytes.Buffer
	ended   sync.WaitGroup
}

// TestComposePlay starts the containers of compose.yaml as processes, kills one, kills two
// at once, and stops all.
func TestComposePlay(t *testing.T) {
	program := buildApp(t)
	c, err := readCompose()
	if err != nil {
		t.Fatal(err)
	}
	h := &host{t: t, net: newNetwork(t, "172.30.0.1"), program: program, began: time.Now(), up: make(map[string]*service)}
	h.secret = filepath.Join(filepath.Dir(program), "compose-secret")
	for name, spec := range c.Services {
		h.add(name, spec)
	}
	t.Cleanup(h.end)

	for _, s := range h.up {
		s.start()
	}
	h.logf("up --wait: all healthy after %.1f s", h.healthy(time.Minute).Seconds())
	first := h.grant("orders-1", "nightly")

	// One crash: the other two keep their locks.
	kept, lines := h.hold("orders-2", "kept")
	h.up["orders-1"].kill(true)
	h.logf("a container crashed: a grant elsewhere after %.1f s", h.until("orders-3", "elsewhere").Seconds())
	h.logf("all healthy after %.1f s", h.healthy(time.Minute).Seconds())
	if h.up["orders-1"].count() != 2 {
		t.Errorf("orders-1 was started %d times", h.up["orders-1"].count())
	}

	// A majority at once: two of three crash and start again, and with the third they found
	// a successor, since Join is complete.
	h.up["orders-1"].kill(true)
	h.up["orders-3"].kill(true)
	h.logf("two of three crashed: the next grant after %.1f s", h.until("orders-2", "after").Seconds())
	h.logf("all healthy after %.1f s", h.healthy(time.Minute).Seconds())
	if s := h.up["orders-2"]; s.count() != 1 {
		t.Errorf("the survivor was started %d times", s.count())
	}
	var line answerLine
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &line) != nil || line.Lost == "" {
		t.Errorf("the survivor's lock was not told lost: %q, %v", lines.Text(), lines.Err())
	}
	h.logf("the survivor's lock: %s", line.Lost)
	kept.Close()

	// Two of three stay away: nothing is granted until they are back.
	h.up["orders-1"].kill(false)
	h.up["orders-3"].kill(false)
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	if _, _, token, err := h.open(ctx, "orders-2", "alone"); err == nil {
		t.Errorf("one of three was granted token %d", token)
	}
	cancel()
	if h.up["orders-2"].healthyNow() {
		t.Error("one of three is healthy")
	}
	h.up["orders-1"].start()
	h.up["orders-3"].start()
	h.logf("two of three were away for 15 s: a grant %.1f s after their start", h.until("orders-2", "alone").Seconds())
	h.healthy(time.Minute)
	if next := h.grant("orders-1", "nightly"); next <= first {
		t.Errorf("token %d at the end, %d at the beginning", next, first)
	}

	began := time.Now()
	var stopping sync.WaitGroup
	for _, s := range h.up {
		stopping.Go(s.stop)
	}
	stopping.Wait()
	h.logf("down: all ended after %.1f s", time.Since(began).Seconds())
	for name, s := range h.up {
		if last := s.exits[len(s.exits)-1]; last != "<nil>" {
			t.Errorf("%s ended with %s", name, last)
		}
	}
}

func (h *host) logf(format string, args ...any) {
	h.t.Helper()
	h.t.Logf("%5.1f s: %s", time.Since(h.began).Seconds(), fmt.Sprintf(format, args...))
}

func (h *host) add(name string, spec *composeService) {
	h.t.Helper()
	at, err := h.net.place(spec.Networks["orders"].IPv4)
	if err != nil {
		h.t.Fatal(err)
	}
	grace, err := time.ParseDuration(spec.StopGracePeriod)
	if err != nil {
		h.t.Fatal(err)
	}
	if spec.Restart != "unless-stopped" {
		h.t.Fatalf("%s: the play knows no restart policy %q", name, spec.Restart)
	}
	h.up[name] = &service{name: name, h: h, at: at, spec: spec, grace: grace}
}

// user returns the user and the group of ${RUN_AS:-1000:1000}.
func (s *service) user() (uid, gid string) {
	ids := strings.TrimSuffix(strings.TrimPrefix(s.spec.User, "${RUN_AS:-"), "}")
	uid, gid, _ = strings.Cut(ids, ":")
	return uid, gid
}

// command returns the program's command line in the container's network, with the file's user and environment.
func (s *service) command(ctx context.Context, args ...string) *exec.Cmd {
	uid, gid := s.user()
	args = append([]string{"netns", "exec", s.at.namespace, "setpriv", "--pdeathsig", "KILL", "--no-new-privs",
		"--reuid", uid, "--regid", gid, "--clear-groups", s.h.program}, args...)
	cmd := exec.CommandContext(ctx, "ip", args...)
	for _, e := range s.spec.env() {
		if strings.HasPrefix(e, "WARDMOTE_SECRET_FILE=") {
			e = "WARDMOTE_SECRET_FILE=" + s.h.secret
		}
		cmd.Env = append(cmd.Env, e)
	}
	return cmd
}

// start runs the container until stop or kill(false): the restart policy starts the next
// process, after Docker's pauses.
func (s *service) start() {
	s.h.t.Helper()
	s.h.writeSecret(s)
	s.mu.Lock()
	s.down = false
	s.mu.Unlock()
	s.ended.Go(func() {
		for pause := 100 * time.Millisecond; ; pause = min(2*pause, time.Minute) {
			began := time.Now()
			if err := s.run(); err != nil {
				s.h.t.Errorf("%s: %v", s.name, err)
				return
			}
			if s.isDown() {
				return
			}
			if time.Since(began) > 10*time.Second {
				pause = 100 * time.Millisecond
			}
			<-time.After(pause)
		}
	})
}

// run is one life of the container.
func (s *service) run() error {
	cmd := s.command(context.Background())
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = in, in
	s.mu.Lock()
	if s.down {
		s.mu.Unlock()
		in.Close()
		return nil
	}
	if err := cmd.Start(); err != nil {
		s.mu.Unlock()
		in.Close()
		return err
	}
	s.process = cmd.Process
	s.starts++
	s.mu.Unlock()
	in.Close()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		s.mu.Lock()
		s.log.Write(lines.Bytes())
		s.log.WriteByte('\n')
		s.mu.Unlock()
	}
	err = cmd.Wait()
	s.mu.Lock()
	s.process = nil
	s.exits = append(s.exits, fmt.Sprint(err))
	s.mu.Unlock()
	return nil
}

func (s *service) isDown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down
}

func (s *service) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.starts
}

// kill is kill -9 of the running process. With again the restart policy starts the next.
func (s *service) kill(again bool) {
	s.mu.Lock()
	s.down = !again
	if s.process != nil {
		_ = s.process.Kill()
	}
	s.mu.Unlock()
	if !again {
		s.ended.Wait()
	}
}

// stop is docker stop: SIGTERM, and SIGKILL after the grace period.
func (s *service) stop() {
	s.mu.Lock()
	s.down = true
	if s.process != nil {
		_ = s.process.Signal(syscall.SIGTERM)
	}
	s.mu.Unlock()
	late := time.AfterFunc(s.grace, func() { s.h.t.Errorf("%s was killed after %v", s.name, s.grace); s.kill(false) })
	s.ended.Wait()
	late.Stop()
}

// healthyNow runs the health check of the file.
func (s *service) healthyNow() bool {
	test := s.spec.Healthcheck.Test
	timeout, err := time.ParseDuration(s.spec.Healthcheck.Timeout)
	if err != nil || len(test) != 3 || test[0] != "CMD" || test[1] != "/app" {
		s.h.t.Errorf("%s: the play knows no health check %q of %q", s.name, test, s.spec.Healthcheck.Timeout)
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return s.command(ctx, test[2:]...).Run() == nil
}

// healthy waits for the health checks of all containers.
func (h *host) healthy(most time.Duration) time.Duration {
	h.t.Helper()
	began := time.Now()
	for name, s := range h.up {
		for !s.healthyNow() {
			if time.Since(began) > most {
				h.t.Fatalf("%s is not healthy after %v", name, most)
			}
			<-time.After(500 * time.Millisecond) // the check of Docker is a poll, too
		}
	}
	return time.Since(began)
}

// open asks a container for a lock, which lasts until the answer is closed.
func (h *host) open(ctx context.Context, name, key string) (io.Closer, *bufio.Scanner, fence.Token, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s:8080/locks/%s", h.up[name].at.address, key), nil)
	if err != nil {
		return nil, nil, 0, err
	}
	answer, err := h.net.client(0).Do(r)
	if err != nil {
		return nil, nil, 0, err
	}
	lines, line := bufio.NewScanner(answer.Body), answerLine{}
	if lines.Scan() {
		err = json.Unmarshal(lines.Bytes(), &line)
	}
	if err == nil && line.Token == 0 {
		err = fmt.Errorf("%s: %+v", answer.Status, line)
	}
	if err != nil {
		answer.Body.Close()
		return nil, nil, 0, err
	}
	return answer.Body, lines, line.Token, nil
}

func (h *host) hold(name, key string) (io.Closer, *bufio.Scanner) {
	h.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	h.t.Cleanup(cancel)
	body, lines, _, err := h.open(ctx, name, key)
	if err != nil {
		h.t.Fatal(err)
	}
	return body, lines
}

func (h *host) grant(name, key string) fence.Token {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), restart)
	defer cancel()
	body, _, token, err := h.open(ctx, name, key)
	if err != nil {
		h.t.Fatal(err)
	}
	body.Close()
	return token
}

// until returns how long a container waits for a lock.
func (h *host) until(name, key string) time.Duration {
	h.t.Helper()
	began := time.Now()
	h.grant(name, key)
	return time.Since(began)
}

// writeSecret makes the file for the user of the containers.
func (h *host) writeSecret(s *service) {
	h.t.Helper()
	if _, err := os.Stat(h.secret); err == nil {
		return
	}
	err := os.WriteFile(h.secret, []byte(newSecret()), 0o600)
	if err == nil {
		uid, gid := s.user()
		var u, g int
		if _, err = fmt.Sscan(uid, &u); err == nil {
			_, err = fmt.Sscan(gid, &g)
		}
		if err == nil {
			err = os.Chown(h.secret, u, g)
		}
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// end ends all containers, and prints the logs of a failed play.
func (h *host) end() {
	for _, s := range h.up {
		s.kill(false)
		s.at.remove()
		if h.t.Failed() {
			h.t.Logf("%s at %s, starts %d, exits %q\n%s", s.name, s.at.address, s.starts, s.exits, s.log.String())
		}
	}
}
