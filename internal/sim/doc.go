// Package sim runs whole clusters under faults, and judges what their callers saw.
package sim
