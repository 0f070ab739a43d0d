package locks

import (
	"encoding/binary"
	"maps"
	"slices"
)

// encodeMeta encodes m as its keys in ascending order, each with its value.
// Each string comes after its length. An empty m has an empty encoding.
func encodeMeta(m map[string]string) string {
	var b []byte
	for _, k := range slices.Sorted(maps.Keys(m)) {
		b = binary.AppendUvarint(b, uint64(len(k)))
		b = append(b, k...)
		b = binary.AppendUvarint(b, uint64(len(m[k])))
		b = append(b, m[k]...)
	}
	return string(b)
}

// decodeMeta decodes the result of encodeMeta. If encoded is of another form,
// perhaps by another version's client, the result is the decodable part.
func decodeMeta(encoded string) map[string]string {
	if encoded == "" {
		return nil
	}
	b := []byte(encoded)
	m := make(map[string]string)
	next := func() (string, bool) {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size) {
			return "", false
		}
		s := string(b[size : size+int(n)])
		b = b[size+int(n):]
		return s, true
	}
	for {
		k, _ := next()
		v, ok := next() // fails too if there is no key
		if !ok {
			return m
		}
		m[k] = v
	}
}
