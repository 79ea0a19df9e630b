package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/dump"
	"k8s.io/apimachinery/pkg/util/rand"
)

// cases reads templates in JSON and writes each with its dump and its hashes, without collisions and after one.
func cases() error {
	templates, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var raw json.RawMessage
		if err := templates.Decode(&raw); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var template corev1.PodTemplateSpec
		if err := json.Unmarshal(raw, &template); err != nil {
			return err
		}
		text, hash := dump.ForHash(template), fnv.New32a()
		fmt.Fprint(hash, text)
		hashes := []string{rand.SafeEncodeString(fmt.Sprint(hash.Sum32()))}
		_ = binary.Write(hash, binary.LittleEndian, uint64(1))
		hashes = append(hashes, rand.SafeEncodeString(fmt.Sprint(hash.Sum32())))
		if err := out.Encode(map[string]any{"template": raw, "dump": text, "hashes": hashes}); err != nil {
			return err
		}
	}
}
