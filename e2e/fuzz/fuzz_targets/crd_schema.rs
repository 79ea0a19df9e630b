#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    coracle_fuzz_targets::run("crd_schema", data);
});
