package port

import (
	"testing"

	"github.com/wardmote/wardmote/internal/testrounds"
)

func TestMain(m *testing.M) {
	testrounds.CollectRarely()
	m.Run()
}
