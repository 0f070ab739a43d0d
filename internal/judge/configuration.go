package judge

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/member"
)

var errConfiguration = errors.New("configuration does not decode")

// Configuration decodes a configuration as raft encodes it, and refuses every other
// encoding and every configuration that no wardmote leader writes.
//
// Raft decodes by reflection, takes lengths from the bytes, and panics at an error.
// So the few shapes that raft writes are decoded here by hand, and the result must
// encode to the very bytes: raft then decodes its own encoding.
func Configuration(data []byte) (raft.Configuration, error) {
	var c raft.Configuration
	if len(data) > maxConfig {
		return c, errConfiguration
	}
	d := decoder{b: data}
	d.expect("\x81\xa7Servers")
	n := d.byte()
	switch {
	case n&0xf0 == 0x90:
		n &= 0x0f
	case n == 0xdc && d.byte() == 0: // sixteen servers or more
		n = d.byte()
	default:
		d.fail()
	}
	if n > MaxServers {
		d.fail()
	}
	for range n {
		var s raft.Server
		d.expect("\x83\xa7Address")
		s.Address = raft.ServerAddress(d.text())
		d.expect("\xa2ID")
		s.ID = raft.ServerID(d.text())
		d.expect("\xa8Suffrage")
		s.Suffrage = raft.ServerSuffrage(d.byte())
		if d.err != nil {
			return raft.Configuration{}, errConfiguration
		}
		c.Servers = append(c.Servers, s)
	}
	if d.finish() != nil || !bytes.Equal(raft.EncodeConfiguration(c), data) {
		return raft.Configuration{}, errConfiguration
	}
	return c, CheckServers(c.Servers)
}

// CheckServers returns why no wardmote leader writes a configuration with these
// servers, or nil.
func CheckServers(servers []raft.Server) error {
	if len(servers) > MaxServers {
		return fmt.Errorf("configuration with %d servers", len(servers))
	}
	voters := 0
	for i, s := range servers {
		if _, _, err := member.ParseRaftID(string(s.ID)); err != nil {
			return fmt.Errorf("configuration with the ID %q", s.ID)
		}
		if string(s.Address) != string(s.ID) || s.Suffrage != raft.Voter && s.Suffrage != raft.Nonvoter {
			return fmt.Errorf("configuration with the address %q and the suffrage %d for %s", s.Address, s.Suffrage, s.ID)
		}
		if slices.ContainsFunc(servers[:i], func(o raft.Server) bool { return o.ID == s.ID }) {
			return fmt.Errorf("configuration with %s twice", s.ID)
		}
		if s.Suffrage == raft.Voter {
			voters++
		}
	}
	if voters == 0 {
		return errors.New("configuration without a voter")
	}
	return nil
}

func (d *decoder) expect(text string) {
	if len(d.b) < len(text) || string(d.b[:len(text)]) != text {
		d.fail()
		return
	}
	d.b = d.b[len(text):]
}

// text takes a string of msgpack with at most maxID bytes.
func (d *decoder) text() string {
	n := int(d.byte())
	switch {
	case n&0xe0 == 0xa0:
		n &= 0x1f
	case n == 0xda: // two bytes of length
		if d.byte() != 0 {
			d.fail()
		}
		n = int(d.byte())
	default:
		d.fail()
	}
	if n > maxID || n > len(d.b) {
		d.fail()
		return ""
	}
	v := string(d.b[:n])
	d.b = d.b[n:]
	return v
}
