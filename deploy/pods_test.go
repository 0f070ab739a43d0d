//go:build linux

package deploy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/wardmote/wardmote/fence"
)

// pod is a pod with one container. Its fields are under town.mu.
type pod struct {
	name, version, node string
	at                  *place
	spec                *corev1.PodSpec
	crashAfter          time.Duration     // the container is killed so long after its start; 0: never
	paths               map[string]string // directories by their mountPath

	ready   bool
	holds   bool      // a client holds a lock by the pod
	since   time.Time // ready since
	told    time.Time // when the pod was told to end, zero before
	gone    bool
	starts  int
	ended   chan struct{} // closed once told is set
	process *os.Process
	lost    bool // its node is
	cut     bool // its node was lost once
	exits   []string
	log     bytes.Buffer
	elected []election
}

// election is a term of the program's job.
type election struct {
	token fence.Token
	at    time.Time
}

func (p *pod) deleted() bool { return !p.told.IsZero() }

// available reports whether the pod was ready for the time least.
func (p *pod) available(least time.Duration) bool {
	return p.ready && !p.deleted() && time.Since(p.since) >= least
}

// kubelet runs the pod's container until the pod is deleted and its process has ended.
// After the end of a container the next one starts, after Kubernetes' pauses.
func (w *town) kubelet(p *pod) {
	defer w.work.Done()
	defer w.change(func() { p.gone, p.ready = true, false })
	defer p.at.remove()
	grace := time.Duration(*p.spec.TerminationGracePeriodSeconds) * time.Second
	pause := time.Duration(0)
	for {
		exited, err := w.container(p)
		if err != nil {
			w.fail("pod %s: %v", p.name, err)
			return
		}
		probing, stop := context.WithCancel(context.Background())
		var probes sync.WaitGroup
		unhealthy := make(chan struct{}, 1)
		probes.Go(func() { w.probeReady(probing, p) })
		probes.Go(func() { w.probeAlive(probing, p, unhealthy) })
		var crash <-chan time.Time
		if p.crashAfter > 0 {
			crash = time.After(p.crashAfter)
		}
		finish := func() {
			_ = p.process.Signal(syscall.SIGTERM)
			select {
			case <-exited:
			case <-time.After(grace):
				w.fail("pod %s was killed after its grace period of %v", p.name, grace)
				_ = p.process.Kill()
				<-exited
			}
		}
		select {
		case <-exited:
		case <-crash:
			_ = p.process.Kill()
			<-exited
		case <-unhealthy:
			w.fail("pod %s is not alive", p.name)
			finish()
		case <-p.ended:
			if w.reachable(p) { // the kubelet of a lost node hears nothing of it
				finish()
			}
		}
		stop()
		probes.Wait()
		w.change(func() { p.ready = false })
		if w.told(p) {
			return
		}
		select {
		case <-p.ended:
			return
		case <-time.After(pause):
			pause = min(max(2*pause, 10*time.Second), 5*time.Minute)
		}
	}
}

func (w *town) told(p *pod) bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// reachable waits while the pod's node is lost. At the end of the play it kills the
// process, and returns false.
func (w *town) reachable(p *pod) bool {
	for {
		w.mu.Lock()
		lost, changed := p.lost, w.changed
		w.mu.Unlock()
		if !lost {
			return true
		}
		select {
		case <-changed:
		case <-w.over:
			_ = p.process.Kill()
			return false
		}
	}
}

// container starts the program in the pod's namespace, as the user and in the environment
// of the manifest. The channel is closed when the process has ended.
func (w *town) container(p *pod) (exited chan struct{}, err error) {
	env, err := environment(&p.spec.Containers[0], p.name, p.at.address, p.node)
	if err != nil {
		return nil, err
	}
	for i, e := range env {
		name, value, _ := strings.Cut(e, "=")
		for mount, dir := range p.paths {
			if strings.HasPrefix(value, mount+"/") {
				env[i] = name + "=" + dir + strings.TrimPrefix(value, mount)
			}
		}
	}
	s := p.spec.SecurityContext
	cmd := exec.Command("ip", "netns", "exec", p.at.namespace, "setpriv", "--pdeathsig", "KILL", "--no-new-privs",
		"--reuid", fmt.Sprint(*s.RunAsUser), "--regid", fmt.Sprint(*s.RunAsGroup), "--groups", fmt.Sprint(*s.FSGroup), w.program)
	cmd.Env = env
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = in, in
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	in.Close()
	exited = make(chan struct{})
	w.change(func() { p.process = cmd.Process; p.starts++ })
	w.work.Go(func() {
		defer out.Close()
		w.read(p, bufio.NewScanner(out))
		err := cmd.Wait()
		w.change(func() { p.exits = append(p.exits, fmt.Sprint(err)) })
		close(exited)
	})
	return exited, nil
}

// read keeps the log and its elections.
func (w *town) read(p *pod, lines *bufio.Scanner) {
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct {
			Msg   string
			Token fence.Token
			Time  time.Time
		}
		_ = json.Unmarshal(lines.Bytes(), &line)
		w.mu.Lock()
		p.log.Write(lines.Bytes())
		p.log.WriteByte('\n')
		if line.Msg == "elected" {
			p.elected = append(p.elected, election{line.Token, line.Time})
		}
		w.mu.Unlock()
	}
}

// probeReady sets ready by the readiness probe.
func (w *town) probeReady(ctx context.Context, p *pod) {
	probe := p.spec.Containers[0].ReadinessProbe
	failed := 0
	w.probe(ctx, p, probe, func(ok bool) {
		if failed++; ok {
			failed = 0
		}
		w.change(func() {
			switch {
			case p.lost || p.deleted():
			case ok && !p.ready:
				p.ready, p.since = true, time.Now()
				least := w.minReady()
				time.AfterFunc(least, func() { w.change(func() {}) })
			case failed >= int(probe.FailureThreshold):
				p.ready = false
			}
		})
	})
}

// probeAlive tells unhealthy once the liveness probe has failed too often.
func (w *town) probeAlive(ctx context.Context, p *pod, unhealthy chan<- struct{}) {
	probe := p.spec.Containers[0].LivenessProbe
	failed := 0
	w.probe(ctx, p, probe, func(ok bool) {
		if failed++; ok {
			failed = 0
		}
		if failed == int(probe.FailureThreshold) {
			unhealthy <- struct{}{}
		}
	})
}

// probe asks at the first moment, and then each period.
func (w *town) probe(ctx context.Context, p *pod, probe *corev1.Probe, told func(ok bool)) {
	client := w.net.client(time.Duration(probe.TimeoutSeconds) * time.Second)
	url := fmt.Sprintf("http://%s:%d%s", p.at.address, portOf(&p.spec.Containers[0], probe.HTTPGet.Port.StrVal), probe.HTTPGet.Path)
	every := time.NewTicker(time.Duration(probe.PeriodSeconds) * time.Second)
	defer every.Stop()
	for {
		w.mu.Lock()
		lost := p.lost
		w.mu.Unlock()
		if !lost { // the kubelet of a lost node goes on, and tells nobody
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
			if err == nil {
				var answer *http.Response
				if answer, err = client.Do(r); err == nil {
					answer.Body.Close()
				}
				if ctx.Err() == nil {
					told(err == nil && answer.StatusCode == http.StatusOK)
				}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}

// volumes makes the directories of the pod's mounts: the secret as Kubernetes writes it,
// through links, and a volume for each claim, which stays with the pod's name.
func (w *town) volumes(name string, spec *corev1.PodSpec) (map[string]string, error) {
	paths := make(map[string]string)
	group := int(*spec.SecurityContext.FSGroup)
	for _, mount := range spec.Containers[0].VolumeMounts {
		dir := filepath.Join(w.dir, name+"-"+mount.Name)
		claimed := true
		for _, v := range spec.Volumes {
			if v.Name == mount.Name && v.Secret != nil {
				claimed = false
				w.made++
				dir = fmt.Sprintf("%s-%d", dir, w.made)
				if err := writeSecret(dir, w.secret, os.FileMode(*v.Secret.DefaultMode), group); err != nil {
					return nil, err
				}
			}
		}
		if claimed { // open to the group of fsGroup, and kept
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return nil, err
			}
			if err := os.Chown(dir, 0, group); err != nil {
				return nil, err
			}
			if err := os.Chmod(dir, os.ModeSetgid|0o775); err != nil {
				return nil, err
			}
		}
		paths[mount.MountPath] = dir
	}
	return paths, nil
}

func writeSecret(dir, secret string, mode os.FileMode, group int) error {
	data := filepath.Join(dir, "..2026")
	if err := os.MkdirAll(data, 0o755); err != nil {
		return err
	}
	file := filepath.Join(data, "secret")
	if err := os.WriteFile(file, []byte(secret), mode); err != nil {
		return err
	}
	if err := os.Chown(file, 0, group); err != nil {
		return err
	}
	if err := os.Symlink("..2026", filepath.Join(dir, "..data")); err != nil {
		return err
	}
	return os.Symlink("..data/secret", filepath.Join(dir, "secret"))
}
