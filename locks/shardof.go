package locks

// ShardOf returns the shard of key among the given number of shards: the 64-bit
// FNV-1a hash of key's bytes, modulo shards. The function never changes, so that
// data written under a shard stays with this shard, whatever the version of the
// program. Other languages can compute the same. ShardOf returns -1 if shards is
// below 1.
func ShardOf(key string, shards int) int {
	const (
		offset = 14695981039346656037
		prime  = 1099511628211
	)
	if shards < 1 {
		return -1
	}
	hash := uint64(offset)
	for i := range len(key) {
		hash = (hash ^ uint64(key[i])) * prime
	}
	return int(hash % uint64(shards))
}
