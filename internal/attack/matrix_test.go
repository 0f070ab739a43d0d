package attack

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// all attacks, row by row.
func allAttacks() []attack {
	return slices.Concat(lockAttacks, raftAttacks, clusterAttacks, gossipAttacks, portAttacks)
}

// attackers returns the attackers of a mode.
func (m mode) attackers() []string {
	switch m {
	case insecure:
		return []string{stranger}
	case withSecret:
		return []string{stranger, impostor, member}
	}
	return []string{stranger, impostor, guest, member}
}

// A verdict is the result of a cell.
type verdict struct {
	mode   mode
	who    string
	attack string
	harm   string // "": refused
	na     bool   // the attacker may do this
	took   time.Duration
}

func (v verdict) String() string {
	switch {
	case v.na:
		return "n.a."
	case v.harm == "" && v.who == "-":
		return "sound"
	case v.harm == "":
		return "refused"
	}
	return "harmed: " + v.harm
}

// try carries out one attack in a town that has settled, and examines the town.
func (w *town) try(who string, at attack) verdict {
	v := verdict{mode: w.mode, who: who, attack: at.name, na: slices.Contains(at.legit, who)}
	began := time.Now()
	a := w.attacker(who)
	defer a.close()
	var err error
	for { // a slow host answers no call within callWithin
		if a.know, err = w.learn(); err == nil && a.know.victim.Token == 0 {
			err = fmt.Errorf("no lock of %s to attack", name(w.victim()))
		}
		if err == nil {
			break
		}
		for key, h := range w.held {
			if detail, lost := h.lost(key); lost {
				v.harm = fmt.Sprintf("%s lost its lock before the attack: %s", name(h.i), detail)
				return v
			}
		}
		if time.Since(began) > patience {
			w.t.Fatalf("%s: nothing learnt: %v", w.mode, err)
		}
	}
	_, _, terms := w.leads()
	gain := at.run(a)
	if v.na {
		gain = ""
	}
	if !at.lasts {
		a.close()
	}
	if a.admitted > 0 || at.packet {
		time.Sleep(at.settle) // harm shows late
	}
	v.harm = strings.Trim(gain+"; "+w.harm(terms), "; ")
	v.took = time.Since(began)
	return v
}

// tryBefore carries out an attack on a town whose first member alone runs.
func tryBefore(t *testing.T, m mode, who string, at attack) (v verdict) {
	for try := 1; ; try++ {
		began := time.Now()
		w := newTown(t, 3, m)
		v = w.tryFounding(who, at)
		v.took = time.Since(began)
		void := w.void(v, began, try)
		w.end()
		if !void {
			return v
		}
	}
}

// tryFounding carries out an attack on the first member and starts the others then.
func (w *town) tryFounding(who string, at attack) verdict {
	v := verdict{mode: w.mode, who: who, attack: at.name}
	w.start(0)
	a := w.attacker(who)
	defer a.close()
	for range 200 { // until the port is open
		if c, err := a.raw(0, 0); err == nil {
			_ = c.Close()
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	for range 3 {
		a.know.members = append(a.know.members, wireWho(len(a.know.members)))
	}
	gain := at.run(a)
	w.start(1)
	w.start(2)
	limit := time.Now().Add(15 * time.Second)
	for _, h := range w.houses {
		if _, err := h.ask("ready", "", time.Until(limit)); err != nil {
			v.harm = strings.Trim(gain+"; no founding within 15 s", "; ")
			return v
		}
	}
	return v // the cluster is founded in spite of the attack
}

// matrix runs attacks in a mode and returns the verdicts.
func matrix(t *testing.T, m mode, attackers []string, attacks []attack) (all []verdict) {
	var w *town
	defer func() {
		if w != nil {
			w.end()
		}
	}()
	note := func(v verdict) {
		all = append(all, v)
		most := 0
		if w != nil {
			most = w.above
		}
		t.Logf("%-8s %-8s %-48s %v (%v, memory so far %d MB above rest)", v.mode, v.who, v.attack, v, v.took.Round(time.Millisecond), most>>20)
	}
	for _, who := range attackers {
		for _, at := range attacks {
			if at.before {
				note(tryBefore(t, m, who, at))
				continue
			}
			var v verdict
			for try := 1; ; try++ {
				if w == nil {
					w = newTown(t, 3, m)
					w.settle()
				}
				began := time.Now()
				if v = w.try(who, at); !w.void(v, began, try) {
					break
				}
				w.end()
				w = nil
			}
			if v.harm != "" {
				// Which harm lasts? The processes start again from their Dirs.
				if why := w.restarts(); why != "" {
					v.harm += "; " + why
				}
				note(v)
				w.end()
				w = nil
				continue
			}
			note(v)
			if at.heavy {
				w.end()
				w = nil
			}
		}
	}
	if w == nil {
		return all
	}
	began := time.Now()
	v := verdict{mode: m, who: "-", attack: "restart from the Dirs after all attacks"}
	if thorough() {
		time.Sleep(ttl) // the last harm has shown
	}
	_, _, terms := w.leads()
	for try := 1; ; try++ {
		tried := time.Now()
		if v.harm = w.harm(terms); v.harm == "" {
			v.harm = w.restarts()
		}
		if !w.void(v, tried, try) {
			break
		}
		w.end()
		w.settle() // the next try judges processes that have started anew
		_, _, terms = w.leads()
	}
	v.took = time.Since(began)
	note(v)
	return all
}

// printMatrix prints the verdicts as a table.
func printMatrix(all []verdict) string {
	type column struct {
		mode mode
		who  string
	}
	var columns []column
	var rows []string
	cells := make(map[string]string)
	for _, v := range all {
		c := column{v.mode, v.who}
		if v.who != "-" && !slices.Contains(columns, c) {
			columns = append(columns, c)
		}
		if v.who != "-" && !slices.Contains(rows, v.attack) {
			rows = append(rows, v.attack)
		}
		cells[fmt.Sprint(v.mode, v.who, v.attack)] = v.String()
	}
	var b strings.Builder
	b.WriteString("| attack |")
	for _, c := range columns {
		fmt.Fprintf(&b, " %s: %s |", c.mode, c.who)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(columns)) + "\n")
	for _, row := range rows {
		fmt.Fprintf(&b, "| %s |", row)
		for _, c := range columns {
			text := cells[fmt.Sprint(c.mode, c.who, row)]
			fmt.Fprintf(&b, " %s |", strings.ReplaceAll(cut(text), "|", "/"))
		}
		b.WriteString("\n")
	}
	for _, v := range all {
		if v.who == "-" {
			fmt.Fprintf(&b, "\n%s: %s: %v", v.mode, v.attack, v)
		}
	}
	return b.String()
}

func cut(s string) string {
	if len(s) > 120 {
		return s[:120] + "…"
	}
	return s
}

// thorough reports whether the matrix and the figures are to be run.
func thorough() bool { return os.Getenv("WARDMOTE_ATTACK") != "" }

// chosen returns the attackers of a mode that WARDMOTE_ATTACK lists as mode/attacker, or
// all of them.
func chosen(m mode) []string {
	text := os.Getenv("WARDMOTE_ATTACK")
	return slices.DeleteFunc(append(m.attackers(), path), func(who string) bool {
		return text != "all" && !slices.Contains(strings.Split(text, ","), string(m)+"/"+who)
	})
}

// modes returns the modes with a chosen attacker.
func modes() []mode {
	return slices.DeleteFunc([]mode{insecure, withSecret, withTLS, withBoth}, func(m mode) bool { return len(chosen(m)) == 0 })
}

// The quick attacks of strangers and impostors are refused where there is a secret.
func TestStrangersAreRefused(t *testing.T) {
	if thorough() {
		t.Skip("part of the matrix")
	}
	t.Parallel()
	attacks := slices.DeleteFunc(allAttacks(), func(a attack) bool { return !a.quick })
	for _, v := range matrix(t, withSecret, []string{stranger, impostor}, attacks) {
		expect(t, v)
	}
}

// Every attack of strangers and impostors is refused, in every mode but Insecure.
func TestTheMatrix(t *testing.T) {
	if !thorough() {
		t.Skip("takes minutes: make attack")
	}
	var all []verdict
	for _, m := range modes() {
		only := os.Getenv("WARDMOTE_ATTACK_ONLY") // a part of the attacks' names
		attacks := slices.DeleteFunc(allAttacks(), func(a attack) bool { return !strings.Contains(a.name, only) })
		attackers := chosen(m)
		onWay := slices.Contains(attackers, path)
		attackers = slices.DeleteFunc(attackers, func(who string) bool { return who == path })
		all = append(all, matrix(t, m, attackers, attacks)...)
		if onWay && only == "" {
			all = append(all, tryOnPath(t, m)...)
		}
	}
	text := printMatrix(all)
	t.Log("\n" + text)
	if file := os.Getenv("WARDMOTE_ATTACK_FILE"); file != "" {
		if err := os.WriteFile(file, []byte(text+"\n"), 0o644); err != nil {
			t.Error(err)
		}
	}
	for _, v := range all {
		expect(t, v)
	}
}
