package certmagicwardmote_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/wardmote/wardmote"
	certmagicwardmote "github.com/wardmote/wardmote/contrib/certmagic"
)

// A program has its client from wardmote.Main, on each of its processes, and a shared storage.
func ExampleWrap() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client, err := wardmote.Local(ctx)
	if err != nil {
		log.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "certificates")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	var config *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return config, nil },
	})
	defer cache.Stop() // before the client is closed
	config = certmagic.New(cache, certmagic.Config{
		Storage: certmagicwardmote.Wrap(&certmagic.FileStorage{Path: dir}, client, certmagicwardmote.Options{}),
	})

	// config.ManageSync obtains certificates under locks like this one.
	if err := config.Storage.Lock(ctx, "issue_cert_example.com"); err != nil {
		log.Fatal(err)
	}
	fmt.Println("held")
	if err := config.Storage.Unlock(ctx, "issue_cert_example.com"); err != nil {
		log.Fatal(err)
	}
	// Output: held
}
