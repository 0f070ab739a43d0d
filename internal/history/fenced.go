package history

import "fmt"

// fenced checks a resource that compares tokens: a write passes exactly when its token is
// no smaller than every token before it.
func fenced(h *History) (found []Violation) {
	highest := make(map[string]uint64)
	for i := range h.Writes {
		w := &h.Writes[i]
		top := highest[w.Resource]
		if w.OK != (w.Token >= top) {
			verb := "refused"
			if w.OK {
				verb = "took"
			}
			found = append(found, Violation{
				Check: "fence", Key: w.Resource, At: w.At,
				Text: fmt.Sprintf("the resource %s token %d of %s after token %d", verb, w.Token, w.Process, top),
			})
		}
		highest[w.Resource] = max(top, w.Token)
	}
	return found
}
