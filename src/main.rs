fn main() {
    println!("coracle {}", env!("CARGO_PKG_VERSION"));
}
