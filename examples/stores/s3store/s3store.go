// Package s3store keeps the manifests of package objectfence in S3, or in a server that
// speaks S3 and honours If-Match and If-None-Match in a put: Amazon's own, or
// versitygw, on which it is tested. Copy the package, or import it.
//
//	client := s3.NewFromConfig(cfg)
//	m, err := objectfence.New(s3store.Store{Client: client, Bucket: "jobs"}, "nightly.json")
//
// Test your server first, with the suite of package fencetest: a server may ignore the
// conditions, and then protects nothing, and gives no error.
package s3store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"

	"github.com/wardmote/wardmote/fence/objectfence"
)

// Store is an objectfence.Store in a bucket.
type Store struct {
	Client *s3.Client
	Bucket string
}

// Get reads an object. The version is the ETag, as the server wrote it.
func (s Store) Get(ctx context.Context, key string) (body []byte, version string, err error) {
	out, err := s.Client.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.Bucket, Key: &key})
	if code(err) == "NoSuchKey" {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("s3store: get: %w", err)
	}
	defer out.Body.Close()
	// One more byte than a manifest may have: objectfence calls the rest damage.
	body, err = io.ReadAll(io.LimitReader(out.Body, limit+1))
	if err == nil && len(body) > limit {
		err = fmt.Errorf("%q has more than %d bytes", key, limit)
	}
	if err == nil && aws.ToString(out.ETag) == "" {
		err = fmt.Errorf("%q came without an ETag", key) // an empty version would mean: no object
	}
	if err != nil {
		return nil, "", fmt.Errorf("s3store: get: %w", err)
	}
	return body, *out.ETag, nil
}

// limit is more than the JSON of the largest state.
const limit = 2 * objectfence.MaxState

// Put replaces the object if the ETag is still version, or creates the object.
//
// The SDK repeats a put by itself when the answer was lost. The second put then meets the
// first, and the SDK reports a conflict although the put was made. Put reports that
// conflict like any other: objectfence looks into the object after each conflict.
func (s Store) Put(ctx context.Context, key string, body []byte, version string) (string, error) {
	in := &s3.PutObjectInput{Bucket: &s.Bucket, Key: &key, Body: bytes.NewReader(body), ContentType: aws.String("application/json")}
	if version == "" {
		in.IfNoneMatch = aws.String("*")
	} else {
		in.IfMatch = &version
	}
	out, err := s.Client.PutObject(ctx, in)
	switch code(err) {
	case "PreconditionFailed", // 412: another version is there
		"ConditionalRequestConflict", // 409: another put is under way
		"NoSuchKey":                  // 404: there was a version, and the object was deleted
		return "", fmt.Errorf("s3store: put: %w: %w", objectfence.ErrConflict, err)
	}
	if err != nil {
		return "", fmt.Errorf("s3store: put: %w", err)
	}
	return aws.ToString(out.ETag), nil
}

// code returns S3's name of an error, and the empty text if the server has not answered.
func code(err error) string {
	var answer smithy.APIError
	if errors.As(err, &answer) {
		return answer.ErrorCode()
	}
	return ""
}
