package history

import "fmt"

// deadSessions finds grants of the log to sessions that were ending or had ended.
func deadSessions(h *History) (found []Violation) {
	dead := make(map[string]string)
	for i := range h.Facts {
		f := &h.Facts[i]
		switch f.Kind {
		case Ending, Expired, Closed:
			if dead[f.Session] == "" {
				dead[f.Session] = fmt.Sprintf("%s by entry %d", f.Kind, f.Index)
			}
		case Granted:
			if how := dead[f.Session]; how != "" {
				found = append(found, Violation{
					Check: "sessions", Key: f.Keys[0], At: f.At,
					Text: fmt.Sprintf("entry %d grants token %d to session %s of %s, which was %s", f.Index, f.Token, f.Session, f.Client, how),
				})
			}
		}
	}
	return found
}

// grantedOnce finds requests that were granted under two tokens. A session that is opened again,
// by a late copy of its Open, remembers none of its former requests.
func grantedOnce(h *History) (found []Violation) {
	tokens := make(map[string]map[uint64]uint64) // by session and seq
	for i := range h.Facts {
		f := &h.Facts[i]
		switch {
		case f.Kind == Opened:
			delete(tokens, f.Session)
		case f.Kind == Granted && f.Seq != 0:
			if tokens[f.Session] == nil {
				tokens[f.Session] = make(map[uint64]uint64)
			}
			if before := tokens[f.Session][f.Seq]; before != 0 && before != f.Token {
				found = append(found, Violation{
					Check: "sessions", Key: f.Keys[0], At: f.At,
					Text: fmt.Sprintf("entry %d grants request %d of session %s of %s under token %d, after token %d", f.Index, f.Seq, f.Session, f.Client, f.Token, before),
				})
			}
			tokens[f.Session][f.Seq] = f.Token
		}
	}
	return found
}
