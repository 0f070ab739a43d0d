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
