package locks

import (
	"encoding/json"
	"time"

	"github.com/wardmote/wardmote/cluster"
)

// The types that reports and lists are made of are JSON documents like Report: durations
// are text, and a list is never null. In Go their durations stay time.Duration. Each type
// with a duration is encoded by a copy of it, in which fields of the same JSON name stand
// in place of the durations.

// MarshalText returns the text of String. The error is always nil.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText parses the text of MarshalText. A mode of a later version is 255.
func (m *Mode) UnmarshalText(text []byte) error {
	*m = ofText(modeTexts, string(text), unknown)
	return nil
}

// MarshalText returns the text of String. The error is always nil.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText parses the text of MarshalText. A reason of a later version is 0.
func (r *Reason) UnmarshalText(text []byte) error {
	*r = ofText(reasonTexts, string(text), 0)
	return nil
}

// unknown stands for a mode of a later version: 0 is ModeExclusive.
const unknown Mode = 255

// ofText returns the key of a text, or none.
func ofText[K ~uint8](texts map[K]string, text string, none K) K {
	for k, t := range texts {
		if t == text {
			return k
		}
	}
	return none
}

type plainStatus Status

// MarshalJSON encodes the status as a document; see Report.
func (s Status) MarshalJSON() ([]byte, error) {
	if s.Holders == nil {
		s.Holders = []Holder{}
	}
	if s.Waiters == nil {
		s.Waiters = []Waiter{}
	}
	return json.Marshal(plainStatus(s))
}

type plainHolder Holder

type holderDocument struct {
	*plainHolder
	Left cluster.Duration `json:"left,omitempty"`
}

// MarshalJSON encodes the holder as a document; see Report. A Left of 0 is left out.
func (h Holder) MarshalJSON() ([]byte, error) {
	return json.Marshal(holderDocument{(*plainHolder)(&h), cluster.Duration(h.Left)})
}

// UnmarshalJSON decodes the document of MarshalJSON.
func (h *Holder) UnmarshalJSON(data []byte) error {
	d := holderDocument{plainHolder: (*plainHolder)(h)}
	err := json.Unmarshal(data, &d)
	h.Left = time.Duration(d.Left)
	return err
}

type plainSession Session

type sessionDocument struct {
	*plainSession
	TTL  cluster.Duration `json:"ttl"`
	Left cluster.Duration `json:"left,omitempty"`
}

// MarshalJSON encodes the session as a document; see Report. A Left of 0 is left out.
func (s Session) MarshalJSON() ([]byte, error) {
	return json.Marshal(sessionDocument{(*plainSession)(&s), cluster.Duration(s.TTL), cluster.Duration(s.Left)})
}

// UnmarshalJSON decodes the document of MarshalJSON.
func (s *Session) UnmarshalJSON(data []byte) error {
	d := sessionDocument{plainSession: (*plainSession)(s)}
	err := json.Unmarshal(data, &d)
	s.TTL, s.Left = time.Duration(d.TTL), time.Duration(d.Left)
	return err
}

type plainOptions GroupOptions

type optionsDocument struct {
	*plainOptions
	Drain cluster.Duration `json:"drain"`
	Grace cluster.Duration `json:"grace"`
}

// MarshalJSON encodes the options as a document; see Report.
func (o GroupOptions) MarshalJSON() ([]byte, error) {
	return json.Marshal(optionsDocument{(*plainOptions)(&o), cluster.Duration(o.Drain), cluster.Duration(o.Grace)})
}

// UnmarshalJSON decodes the document of MarshalJSON.
func (o *GroupOptions) UnmarshalJSON(data []byte) error {
	d := optionsDocument{plainOptions: (*plainOptions)(o)}
	err := json.Unmarshal(data, &d)
	o.Drain, o.Grace = time.Duration(d.Drain), time.Duration(d.Grace)
	return err
}
