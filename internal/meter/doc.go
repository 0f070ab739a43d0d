// Package meter has the counters and histograms that the rooms of a node and a
// client always keep, and the text in which they are read.
//
// A node has one Node, a client one Client. Both are made with their owner and count
// from then on, whether or not a program reads them, since a program may begin to
// read late. So each count costs a few atomic additions, and no memory: the zero
// values of all types work, and their sizes are fixed. Nothing here is global.
//
// Encoder writes the formats of OpenMetrics and of Prometheus. Package lockshttp
// decides which metrics there are, and reads; package meter knows no name of a metric.
//
// Package meter must not import another package of the house, and starts no goroutine.
package meter
