package machine

// KeyValue is the value of a key, for readers.
type KeyValue struct {
	Key     string
	Value   string
	Token   Token // the key was granted last under Token
	Unclean bool  // the last exclusive holder did not release
}

// Values returns, in ascending order, at most n keys with a value, with prefix, from
// first on, and fewer if their keys and values exceed so many bytes. At least one is
// returned if there is one; more reports whether others follow.
func (s *State) Values(prefix, first string, n, bytes int) (list []KeyValue, more bool) {
	for key := range s.keys.valued.from(first, prefix) {
		r := s.keys.get(key)
		bytes -= len(key) + len(r.value)
		if len(list) == n || len(list) > 0 && bytes < 0 {
			return list, true
		}
		list = append(list, KeyValue{Key: key, Value: r.value, Token: r.last, Unclean: r.unclean})
	}
	return list, false
}
